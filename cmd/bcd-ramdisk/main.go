// Command bcd-ramdisk is everything bcd runs inside a booted machine.
package main

import "fmt"

func main() { fmt.Println("hello") }
