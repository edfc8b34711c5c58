package api

import "github.com/better-compute/bcd/app"

// AnswerInput is what a person says to a question about a port.
type AnswerInput struct {
	Answer string `json:"answer" doc:"accept: the port is the machine's that it was seen in, and no longer the other's; refuse: it is not"`
}

// The answers.
const (
	AnswerAccept = "accept"
	AnswerRefuse = "refuse"
)

// PortQuestion is a question with its sentence.
type PortQuestion struct {
	app.PortQuestion
	Text string `json:"text"`
}

func (a *API) portRoutes() []Route {
	return []Route{
		on(Route{ID: "ports.list", Method: "GET", Path: "/api/v1/port-questions", Permission: app.PermMachinesRead,
			Summary: "List questions about network ports that only a person can answer, and the answers.", CLI: CLI{"port", "list"}}, a.listPortQuestions),
		on(Route{ID: "ports.answer", Method: "POST", Path: "/api/v1/port-questions/{id}/answer", Permission: app.PermMachinesWrite,
			Summary: "Say whether a port belongs to the machine that it was seen in: accept or refuse.", CLI: CLI{"port", "answer"}, Args: []string{"answer"}}, a.answerPort),
		on(Route{ID: "ports.forget", Method: "DELETE", Path: "/api/v1/port-questions/{id}", Permission: app.PermMachinesWrite,
			Summary: "Forget a question and its answer, so that it is asked again when the port is seen again.", CLI: CLI{"port", "forget"}}, a.forgetPort),
	}
}

func (a *API) listPortQuestions(c *Call, _ none) (List[PortQuestion], error) {
	all, err := a.Service.PortQuestions(c)
	out := make([]PortQuestion, 0, len(all))
	for _, q := range all {
		out = append(out, PortQuestion{q, q.Text()})
	}
	return list(out, err)
}

func (a *API) answerPort(c *Call, in AnswerInput) (*PortQuestion, error) {
	if in.Answer != AnswerAccept && in.Answer != AnswerRefuse {
		return nil, app.Invalid("answer", "is neither accept nor refuse").Do("say accept when the port is in that machine now, refuse when it is not")
	}
	q, err := a.Service.AnswerPort(c, c.actor(), c.Path["id"], in.Answer == AnswerAccept)
	if err != nil {
		return nil, err
	}
	return &PortQuestion{*q, q.Text()}, nil
}

func (a *API) forgetPort(c *Call, _ none) (none, error) {
	return none{}, a.Service.ForgetPortQuestion(c, c.actor(), c.Path["id"])
}
