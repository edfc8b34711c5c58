// Package api is the JSON face of the appliance: one table of routes, from which come the handlers, the permission each
// needs, the OpenAPI 3.1 document and the help of the command line. The console calls the same table in process.
//
// The use cases are reached through the interfaces of ports.go, which app/site fills in.
package api
