package app

import "time"

// ISOSpec is what a machine is asked to boot from a CD image.
type ISOSpec struct {
	Image        string `json:"image" doc:"id or name of an ISO image"`
	Via          ISOVia `json:"via,omitempty" doc:"virtual-media (its BMC shows the image as a CD drive) or network (its loader reads it, by sanboot); absent: virtual media where its BMC has it"`
	OverDeployed bool   `json:"overDeployed,omitempty" doc:"on a deployed machine too: what the image starts may overwrite its system"`
}

// ISOVia is the way by which a machine reads a CD image.
type ISOVia string

// The ways; "" leaves the choice to what the machine's BMC can do.
const (
	ISOByMedia   ISOVia = "virtual-media" // its BMC fetches the image and shows it to the machine as a drive
	ISOByNetwork ISOVia = "network"       // the loader of a network boot reads it in place, by sanboot
)

// ISORun is the CD image that a machine was started from.
type ISORun struct {
	WorkflowID string    `json:"workflowId"`
	ImageID    string    `json:"imageId"`
	ImageName  string    `json:"imageName"`
	Via        ISOVia    `json:"via"`
	Before     State     `json:"before"` // where the machine was, and is again when it leaves the image
	Started    time.Time `json:"started"`
}
