package bcx

import "os"

// readWaiting gives nothing: pipes have no deadlines here.
func readWaiting(*os.File, []byte) int { return 0 }
