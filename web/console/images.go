package console

import (
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"

	"github.com/a-h/templ"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console/views"
	"github.com/better-compute/bcd/web/problem"
)

func imagePages() []Page {
	return []Page{
		get("/images", images), raw(get("/images/live", imagesLive)), raw(post("/images", uploadImage)),
		post("/images/import", importImage), post("/images/{id}/delete", deleteImage),
	}
}

func images(c *Console, q *request) error {
	l, err := ask[api.List[app.Image]](q, "images.list", nil)
	if err != nil {
		return err
	}
	d := views.ImagesData{Images: l.Items, Formats: api.Formats(), Now: c.api.Now()}
	return q.show("Images", "/images", func(p views.Page) templ.Component { return views.Images(p, d) })
}

func importImage(c *Console, q *request) error {
	f := q.form
	in := api.FetchInput{Name: strings.TrimSpace(f.Get("name")), URL: strings.TrimSpace(f.Get("url")), Path: strings.TrimSpace(f.Get("path")), Format: f.Get("format")}
	in.SHA256, in.SHA512 = digest(f.Get("sha256"))
	img, err := ask[*app.Image](q, "images.import", in)
	if err != nil {
		q.refuse(err)
		return images(c, q)
	}
	return q.done("/images", img.Name+" is being imported.")
}

// digest tells by its length which of the two a digest is.
func digest(s string) (sha256, sha512 string) {
	if s = strings.TrimSpace(s); len(s) == 128 {
		return "", s
	}
	return s, ""
}

func deleteImage(c *Console, q *request) error {
	if _, err := ask[any](q, "images.delete", nil); err != nil {
		q.refuse(err)
		return images(c, q)
	}
	return q.done("/images", "The image is deleted.")
}

// uploadImage takes the form of a browser without script: fields first, then the file, which goes to the catalog as it
// comes, without being kept anywhere on the way.
func uploadImage(c *Console, q *request) error {
	if err := q.Who.Need(app.PermImagesWrite); err != nil {
		return err
	}
	body := http.MaxBytesReader(q.w, q.r.Body, 1<<62)
	q.r.Body = io.NopCloser(c.api.Patient(q.w, body))
	img, err := q.upload()
	if err != nil {
		drain(q.r.Body)
		q.refuse(err)
		return images(c, q)
	}
	return q.done("/images", img.Name+" is stored.")
}

func (q *request) upload() (*app.Image, error) {
	parts, err := q.r.MultipartReader()
	if err != nil {
		return nil, problem.Malformed("the upload is not a form with a file")
	}
	q.form = url.Values{}
	for range 8 {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, problem.Malformed("the upload ended early").Retryable()
		}
		if part.FormName() == "file" {
			return q.storeFile(part)
		}
		value, err := io.ReadAll(io.LimitReader(part, 4<<10))
		if err != nil {
			return nil, problem.Malformed("the upload ended early").Retryable()
		}
		q.form.Set(part.FormName(), string(value))
	}
	return nil, app.Invalid("file", "no file came").Do("choose a disk image")
}

func (q *request) storeFile(part *multipart.Part) (*app.Image, error) {
	in := api.ImportInput{Name: strings.TrimSpace(q.form.Get("name")), Format: q.form.Get("format")}
	in.SHA256, in.SHA512 = digest(q.form.Get("sha256"))
	if err := in.Normalize(); err != nil {
		return nil, err
	}
	return q.c.api.Catalog.Upload(q, q.Who.Actor(), in, part, -1)
}
