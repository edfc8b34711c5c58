package redfish

import "time"

// limits bound the parts of one exchange with a BMC.
type limits struct {
	connect   time.Duration
	handshake time.Duration
	request   time.Duration // from the connection to the answer's last byte
	login     time.Duration // the making of a session
	logout    time.Duration // the deletion of one, which also runs when the caller is gone
}

// limitsOf gives the limits: those that suit BMCs on a network, or each patience when that is not 0.
func limitsOf(patience time.Duration) limits {
	if patience > 0 {
		return limits{patience, patience, patience, patience, patience}
	}
	return limits{
		connect:   5 * time.Second,
		handshake: 10 * time.Second, // old BMCs need seconds for one RSA signature
		request:   30 * time.Second,
		login:     20 * time.Second, // old BMCs take many seconds to make one
		logout:    10 * time.Second,
	}
}
