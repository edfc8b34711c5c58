package api

import (
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/problem"
)

// FetchInput imports an image from a URL or from a file on the appliance: exactly one of url and path.
type FetchInput struct {
	Name   string `json:"name" doc:"name of the image"`
	URL    string `json:"url,omitempty" doc:"http or https URL to fetch it from"`
	Path   string `json:"path,omitempty" doc:"absolute path on the appliance, of a file or of the directory of an OCI image"`
	SHA256 string `json:"sha256,omitempty" doc:"SHA-256 of the file as delivered, hex; this or sha512 is required with a URL"`
	SHA512 string `json:"sha512,omitempty" doc:"SHA-512 of the file as delivered, hex, where its publisher states that"`
	Format string `json:"format,omitempty" doc:"raw, qcow2, iso, rootfs (a tar archive) or oci, packed ones with .gz, .xz or .zst; absent: told by its content"`
}

// Formats lists the image formats an import can be told of.
func Formats() []string {
	return []string{"raw", "raw.gz", "raw.xz", "raw.zst", "qcow2", "qcow2.gz", "qcow2.xz", "qcow2.zst", "iso", "iso.gz", "iso.xz", "iso.zst",
		"rootfs", "rootfs.gz", "rootfs.xz", "rootfs.zst", "oci", "oci.gz", "oci.xz", "oci.zst"}
}

func (a *API) imageRoutes() []Route {
	return []Route{
		on(Route{ID: "images.list", Method: "GET", Path: "/api/v1/images", Permission: app.PermImagesRead, Summary: "List images.", CLI: CLI{"image", "list"}}, a.listImages),
		on(Route{ID: "images.import", Method: "POST", Path: "/api/v1/images", Permission: app.PermImagesWrite, Status: http.StatusAccepted,
			Summary: "Import an image from a URL or, with compute:settings:write, from a file on the appliance.", CLI: CLI{"image", "import"}, Args: []string{"name"}}, a.importImage),
		on(Route{ID: "images.upload", Method: "PUT", Path: "/api/v1/images/{name}", Permission: app.PermImagesWrite, Raw: true, Status: http.StatusCreated,
			Summary: "Upload an image: the body is the image, its length is declared.",
			Headers: []Param{{"Content-Digest", "string", "sha-256=:BASE64: or sha-512=:BASE64: of the body (RFC 9530)"}, {"Bcd-Image-Format", "string", "raw, qcow2, iso, rootfs (a tar archive) or oci, packed ones with .gz, .xz or .zst; absent: told by its content"}},
			CLI:     CLI{"image", "upload"}}, a.uploadImage),
		on(Route{ID: "images.get", Method: "GET", Path: "/api/v1/images/{id}", Permission: app.PermImagesRead, Summary: "Show one image, by id or name.", CLI: CLI{"image", "show"}}, a.getImage),
		on(Route{ID: "images.delete", Method: "DELETE", Path: "/api/v1/images/{id}", Permission: app.PermImagesWrite, Summary: "Delete an image.", CLI: CLI{"image", "delete"}}, a.deleteImage),
	}
}

func (a *API) listImages(c *Call, _ none) (List[app.Image], error) {
	return list(a.Images.ListImages(c))
}

func (a *API) getImage(c *Call, _ none) (*app.Image, error) { return a.Images.Image(c, c.Path["id"]) }

func (a *API) deleteImage(c *Call, _ none) (none, error) {
	img, err := a.Images.Image(c, c.Path["id"])
	if err != nil {
		return none{}, err
	}
	return none{}, a.Catalog.Delete(c, c.actor(), img.ID)
}

// Normalize checks the parts of an import that a face can check.
func (in *ImportInput) Normalize() error {
	if err := app.ValidName("name", in.Name); err != nil {
		return err
	}
	in.SHA256, in.SHA512 = strings.ToLower(strings.TrimSpace(in.SHA256)), strings.ToLower(strings.TrimSpace(in.SHA512))
	if raw, err := hex.DecodeString(in.SHA256); err != nil || in.SHA256 != "" && len(raw) != 32 {
		return app.Invalid("sha256", "is not a SHA-256 digest").Do("give the 64 hexadecimal digits that sha256sum prints, or a SHA-512 as sha512")
	}
	if raw, err := hex.DecodeString(in.SHA512); err != nil || in.SHA512 != "" && len(raw) != 64 {
		return app.Invalid("sha512", "is not a SHA-512 digest").Do("give the 128 hexadecimal digits that sha512sum prints")
	}
	if in.SHA256 != "" && in.SHA512 != "" {
		return app.Invalid("sha512", "is given beside a SHA-256").Do("give one of the two")
	}
	if in.Format != "" && !slices.Contains(Formats(), in.Format) {
		return app.Invalid("format", "is no image format").Do("use %s, or nothing", strings.Join(Formats(), ", "))
	}
	return nil
}

func (a *API) importImage(c *Call, in FetchInput) (*app.Image, error) {
	im := ImportInput{Name: in.Name, SHA256: in.SHA256, SHA512: in.SHA512, Format: in.Format}
	if err := im.Normalize(); err != nil {
		return nil, err
	}
	if (in.URL == "") == (in.Path == "") {
		return nil, app.Invalid("url", "give either a url or a path")
	}
	if in.Path != "" {
		if !path.IsAbs(in.Path) || path.Clean(in.Path) != in.Path || strings.ContainsRune(in.Path, 0) {
			return nil, app.Invalid("path", "is not an absolute path of a file on the appliance")
		}
		if err := c.Who.Need(app.PermSettingsWrite); err != nil {
			return nil, err
		}
		return a.Catalog.ImportPath(c, c.actor(), im, in.Path)
	}
	u, err := url.Parse(in.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || len(in.URL) > 2000 {
		return nil, app.Invalid("url", "is not an http or https URL")
	}
	if u.User != nil {
		return nil, app.Invalid("url", "carries a login").Do("serve the image without one: URLs are shown and logged")
	}
	if im.SHA256+im.SHA512 == "" {
		return nil, app.Invalid("sha256", "is required for an import from a URL").Do("give the digest that the publisher states; a SHA-512 as sha512")
	}
	return a.Catalog.Fetch(c, c.actor(), im, in.URL)
}

func (a *API) uploadImage(c *Call, _ rawInput) (*app.Image, error) {
	body := a.Patient(c.w, c.r.Body)
	in := ImportInput{Name: c.Path["name"], Format: c.r.Header.Get("Bcd-Image-Format")}
	var err error
	if in.SHA256, in.SHA512, err = contentDigest(c.r.Header.Get("Content-Digest")); err != nil {
		return nil, err
	}
	if err := in.Normalize(); err != nil {
		return nil, err
	}
	if c.r.ContentLength < 0 {
		return nil, app.Errorf(app.InvalidInput, problem.ReasonLength, "the length of the image is not declared").Do("send a Content-Length")
	}
	if c.r.ContentLength == 0 {
		return nil, problem.Malformed("the image is empty")
	}
	return a.Catalog.Upload(c, c.actor(), in, body, c.r.ContentLength)
}

// contentDigest reads the sha-256 or sha-512 member of an RFC 9530 Content-Digest, the first of them as hex; both are "" when the
// header is absent.
func contentDigest(h string) (sha256, sha512 string, err error) {
	if h == "" {
		return "", "", nil
	}
	for _, member := range strings.Split(h, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(member), "=")
		raw, err := base64.StdEncoding.DecodeString(strings.Trim(value, ":"))
		whole := err == nil && strings.HasPrefix(value, ":") && strings.HasSuffix(value, ":")
		switch {
		case name == "sha-256" && whole && len(raw) == 32:
			return hex.EncodeToString(raw), "", nil
		case name == "sha-512" && whole && len(raw) == 64:
			return "", hex.EncodeToString(raw), nil
		case name == "sha-256", name == "sha-512":
			return "", "", errDigest
		}
	}
	return "", "", errDigest
}

var errDigest = problem.Malformed("holds no sha-256 or sha-512 digest").At("Content-Digest").Do("write it as sha-256=:BASE64:")
