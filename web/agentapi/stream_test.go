package agentapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/better-compute/bcd/web/agentapi"
)

func TestStream(t *testing.T) {
	h := agentapi.Stream()
	for query, want := range map[string]int{"?bytes=1": 200, "?bytes=3000000": 200, "": 400, "?bytes=0": 400, "?bytes=-1": 400, "?bytes=x": 400, "?bytes=16384000001": 400, "?bytes=99999999999999999999": 400} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/measure/stream"+query, nil))
		if w.Code != want || want == 200 && "?bytes="+w.Header().Get("Content-Length") != query {
			t.Errorf("%q: %d, %v", query, w.Code, w.Header())
		}
		if query == "?bytes=3000000" && w.Body.Len() != 3000000 {
			t.Errorf("%d bytes", w.Body.Len())
		}
	}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/measure/stream?bytes=1", nil)); w.Code != 400 {
		t.Errorf("POST: %d", w.Code)
	}
}

// Few machines measure at a time; the place of one that has had enough is free again.
func TestStreamsAreFew(t *testing.T) {
	s := httptest.NewServer(agentapi.Stream())
	defer s.Close()
	get := func() *http.Response {
		res, err := s.Client().Get(s.URL + "?bytes=16000000000")
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	var open []*http.Response
	for range 16 {
		res := get()
		if _, err := io.CopyN(io.Discard, res.Body, 1000); err != nil || res.StatusCode != 200 {
			t.Fatalf("%s, %v", res.Status, err)
		}
		open = append(open, res)
	}
	res := get()
	res.Body.Close()
	if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
		t.Errorf("the seventeenth: %s", res.Status)
	}
	for _, r := range open {
		r.Body.Close()
	}
	for tries := 0; ; tries++ {
		res := get()
		res.Body.Close()
		if res.StatusCode == 200 {
			return
		}
		if tries > 10_000 {
			t.Fatal("no place becomes free")
		}
	}
}
