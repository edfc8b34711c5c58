package app

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"time"
)

// The questions about ports that only a person can answer. A machine about which there is one boots its disk: it may be
// another than it seems.
const (
	PortNew   = "new-port"   // a port that is nobody's, in a machine all of whose ports are known
	PortMoved = "moved-port" // a port of one machine, in another
)

// The states of a question. A refusal stands until the facts change: then it is another question.
const (
	QuestionOpen     = "open"
	QuestionAccepted = "accepted"
	QuestionRefused  = "refused"
)

// PortQuestion asks whether a port belongs to the machine that it was seen in. Who owns the port, and in which machine it
// was seen, are the facts that it is about.
type PortQuestion struct {
	ID         string    `json:"id"`
	Kind       string    `json:"kind"` // PortNew, PortMoved
	MAC        MAC       `json:"mac"`
	OwnerID    string    `json:"ownerId,omitempty"` // the machine whose port it is known as; "" for PortNew
	Owner      string    `json:"owner,omitempty"`   // its name, when read
	MachineID  string    `json:"machineId"`         // the machine that it was seen in
	Machine    string    `json:"machine,omitempty"` // its name, when read
	State      string    `json:"state"`
	First      time.Time `json:"first"`
	Last       time.Time `json:"last"` // when it was asked last
	Answered   time.Time `json:"answered,omitzero"`
	AnsweredBy string    `json:"answeredBy,omitempty"`
}

// NewPortQuestion makes the question about these facts; the same facts make the same id. owner is "" for PortNew.
func NewPortQuestion(kind string, mac MAC, owner, machine string, at time.Time) PortQuestion {
	sum := sha256.Sum256([]byte(strings.Join([]string{kind, string(mac), owner, machine}, "\x00")))
	id := "pq-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10]))
	return PortQuestion{ID: id, Kind: kind, MAC: mac, OwnerID: owner, MachineID: machine, State: QuestionOpen, First: at, Last: at}
}

// Text asks, in a sentence. It needs the names.
func (q PortQuestion) Text() string {
	if q.Kind == PortMoved {
		return fmt.Sprintf("Port %s is known as one of %s and was seen in %s: was it moved to %s?", q.MAC, q.Owner, q.Machine, q.Machine)
	}
	return fmt.Sprintf("Port %s netbooted with the UUID of %s, among whose ports it was not: is it one of %s?", q.MAC, q.Machine, q.Machine)
}

// PortQuestionStore keeps the questions about ports: at most a thousand, those not asked for longest go.
type PortQuestionStore interface {
	// AskPort puts a question down. It is new when nobody asked it before, or its last answer was followed and the facts
	// are as they were before that; then it is open. Else what is stored stays, and becomes q.
	AskPort(ctx context.Context, q *PortQuestion) (anew bool, err error)
	// PortQuestion finds a question by its id, without the names.
	PortQuestion(ctx context.Context, id string) (*PortQuestion, error)
	// ListPortQuestions gives the questions with the names of their machines, those asked last first. An open one whose
	// facts have changed is not among them.
	ListPortQuestions(ctx context.Context) ([]PortQuestion, error)
	// AnswerPort reads a question and its machines, lets answer change them and writes all three, in one transaction.
	// owner is nil for PortNew. Once it is accepted, what else was asked about the port is forgotten.
	AnswerPort(ctx context.Context, id string, answer func(q *PortQuestion, owner, machine *Machine) error) (*PortQuestion, error)
	// DeletePortQuestion forgets a question and its answer, so that it is asked again.
	DeletePortQuestion(ctx context.Context, id string) error
}
