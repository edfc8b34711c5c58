package passthrough

// What tests outside of the package look at.
var (
	SCSIEnd = scsiEnd
	Millis  = millis
)
