package redfish

import (
	"context"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/better-compute/bcd/plugins/driver"
)

const (
	mediaReads  = 45 // reads until a drive must show what was asked, 2 s apart: BMCs look at the image before they show it
	mediaTries  = 5  // an iDRAC fails for seconds when an insertion follows an ejection
	mediaLimit  = 512
	maxAdapted  = 6 // parameters that a BMC demands one after the other
	blankSecret = "none"
)

// media implements driver.VirtualMedia.
type media struct{ *operations }

// Insert makes the machine's virtual CD hold the image, and returns when the BMC reads back so.
func (m media) Insert(ctx *driver.Context, iso string) error {
	u, err := url.Parse(iso)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" || len(iso) > mediaLimit {
		return driver.Errorf(driver.CodeInvalidArgs, "the image must be an http or https address of at most %d characters without a user name", mediaLimit)
	}
	err = m.use(ctx, writeLimit, func(ctx *driver.Context, c *conn) error {
		all, err := c.cdDrives(ctx, iso)
		if err != nil {
			return err
		}
		var refused error
		for _, d := range all {
			err := m.insertInto(ctx, c, d, iso)
			if err == nil {
				return nil
			}
			if refused == nil || driver.AsError(err).Code != driver.CodeUnsupported {
				refused = err
			}
			if !nextDrive(err) {
				break
			}
		}
		return refused
	})
	if err != nil {
		return hiding(err, iso)
	}
	return nil
}

// imageName is an image's address as errors and logs show it: the path may hold what opens it.
func imageName(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return clip(path.Base(address), 80)
	}
	return clip(u.Scheme+"://"+u.Host+"/.../"+path.Base(u.Path), 120)
}

// The parts of an image's path that open something are long; as much of one as this is taken for it, for what a BMC says is
// cut.
const (
	longPart = 16
	somePart = 6
)

// hideImage takes an image's address out of what a BMC says, and also what opens the image when the BMC says that alone.
func hideImage(text, address string) string {
	text = strings.ReplaceAll(text, address, imageName(address))
	u, err := url.Parse(address)
	if err != nil {
		return text
	}
	for part := range strings.SplitSeq(path.Dir(u.Path), "/") {
		if len(part) >= longPart {
			text = hidePart(text, part)
		}
	}
	return text
}

// hidePart takes a word, and each beginning of it, out of a text.
func hidePart(text, part string) string {
	var out strings.Builder
	for {
		at := strings.Index(text, part[:somePart])
		if at < 0 {
			return out.String() + text
		}
		n := somePart
		for n < len(part) && at+n < len(text) && text[at+n] == part[n] {
			n++
		}
		out.WriteString(text[:at] + "...")
		text = text[at+n:]
	}
}

// hiding is an error of a BMC about an image, without what opens the image.
func hiding(err error, address string) error {
	e := driver.AsError(err)
	e.Message = hideImage(e.Message, address)
	return e
}

// nextDrive reports whether another drive may take what this one refused: Cisco UCS has drives for its console alone, which
// answer 400 or 405.
func nextDrive(err error) bool {
	switch e := driver.AsError(err); e.Code {
	case driver.CodeUnsupported, codeNotFound, driver.CodeBMCError, driver.CodeBusy:
		return true
	}
	return false
}

// cdDrives finds the drives that can hold an image, best first, or says why there is none.
func (c *conn) cdDrives(ctx context.Context, iso string) ([]drive, error) {
	sys, err := c.findSystem(ctx)
	if err != nil {
		return nil, err
	}
	manager, err := c.manager(ctx, sys)
	if err != nil {
		return nil, err
	}
	all, err := c.drives(ctx, sys, manager)
	if err != nil {
		return nil, err
	}
	if cds := candidates(all, iso); len(cds) > 0 {
		return cds, nil
	}
	place, err := c.find(ctx, manager.link("VirtualMedia"))
	switch {
	case err != nil:
		return nil, err
	case quirkShareOnly(sys, place):
		return nil, driver.Errorf(driver.CodeUnsupported, "this BMC mounts images from Windows shares only, not from a web server; boot the machine over the network instead")
	}
	return nil, driver.Errorf(driver.CodeUnsupported, "the BMC shows no virtual CD drive; it may need a licence or newer firmware; boot the machine over the network instead")
}

// insertInto puts the image into one drive, emptying it first of another one.
func (m media) insertInto(ctx *driver.Context, c *conn, d drive, iso string) error {
	switch {
	case d.holds(iso):
		return nil
	case d.byConsole():
		return driver.Errorf(driver.CodeBusy, "a remote console holds the virtual drive %s with %q; close it there", d.id, imageName(d.image())).Again()
	case d.full():
		if err := m.empty(ctx, c, d); err != nil {
			return err
		}
	}
	ctx.Emit(driver.Progress{Phase: "media", Message: "asking the BMC to insert the image into " + d.id})
	var err error
	for tries := 1; ; tries++ {
		var again bool
		again, err = m.fill(ctx, c, d.path, iso)
		if err == nil || !again || tries == mediaTries {
			return err
		}
		if err := m.pause(ctx, busyPause); err != nil {
			return err
		}
	}
}

// fill tries the forms of one drive until the image shows. again says that the same may work in a moment.
func (m media) fill(ctx *driver.Context, c *conn, at, iso string) (again bool, err error) {
	var refused error
	for _, form := range []func(*driver.Context, *conn, drive, string) (*response, error){m.byAction, m.byImage, m.byInserted} {
		d, err := c.drive(ctx, at)
		if err != nil {
			return false, err
		}
		if d.holds(iso) {
			return false, nil
		}
		r, err := form(ctx, c, d, iso)
		switch {
		case err != nil:
			// The BMC may look at the image for longer than it keeps us waiting: what it shows decides.
			if driver.AsError(err).Code != driver.CodeTimeout || ctx.Err() != nil {
				return false, err
			}
		case r == nil:
			continue // the drive has not this form
		case r.status >= 300:
			f := parseFault(r)
			if refused = f.err("inserting the image into its virtual CD"); !f.otherForm() {
				return f.passing() || f.status >= http.StatusInternalServerError, refused
			}
			m.log.Info("BMC refused a form of inserting an image", "bmc", c.target.origin, "drive", d.id, "answer", hideImage(f.text(), iso))
			continue
		default:
			if err := m.follow(ctx, c, r, "inserting the image"); err != nil {
				return false, err
			}
		}
		return false, m.awaitFull(ctx, c, at, iso)
	}
	if refused == nil {
		refused = driver.Errorf(driver.CodeUnsupported, "the BMC offers no way to put an image into its virtual drive")
	}
	return false, refused
}

// otherForm reports a refusal of the form, not of the image: there is no such action or member here.
func (f fault) otherForm() bool {
	switch f.status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	}
	return f.status == http.StatusBadRequest && f.is("ActionNotSupported", "PropertyUnknown", "PropertyNotWritable", "PropertyMissing")
}

// drive reads one drive anew.
func (c *conn) drive(ctx context.Context, at string) (drive, error) {
	d, err := c.get(ctx, at)
	if err != nil {
		return drive{}, err
	}
	return drive{d, clip(firstOf(d.text("Id"), at), 80), short(d.texts("MediaTypes"))}, nil
}

// byAction posts InsertMedia with nothing but the image, and adds what the BMC then says it misses: Supermicro X11 and X12
// refuse members that others demand.
func (m media) byAction(ctx *driver.Context, c *conn, d drive, iso string) (*response, error) {
	target := d.text("Actions", insertAction, "target")
	if target == "" {
		return nil, nil
	}
	body, err := c.firstBody(ctx, d, iso)
	if err != nil {
		return nil, err
	}
	for adapted := 0; ; adapted++ {
		r, err := c.send(ctx, http.MethodPost, target, body, nil)
		if err != nil || r.status < 300 || adapted == maxAdapted || !adapt(body, parseFault(r), iso) {
			return r, err
		}
	}
}

// byImage writes the image alone, for drives without the action (XCC) and iLO 4, which refuses more.
func (m media) byImage(ctx *driver.Context, c *conn, d drive, iso string) (*response, error) {
	return m.patch(ctx, c, d.document, map[string]any{"Image": iso})
}

// byInserted writes the image and that it is in, for those that need both.
func (m media) byInserted(ctx *driver.Context, c *conn, d drive, iso string) (*response, error) {
	return m.patch(ctx, c, d.document, map[string]any{"Image": iso, "Inserted": true})
}

// protocolOf is Redfish's word for the protocol of an address.
func protocolOf(iso string) string {
	scheme, _, _ := strings.Cut(iso, ":")
	return strings.ToUpper(scheme)
}

// firstBody is InsertMedia's body: the image, and the parameters that the BMC says it requires. An address whose protocol
// the BMC has not is refused here, with those it has.
func (c *conn) firstBody(ctx context.Context, d drive, iso string) (map[string]any, error) {
	body := map[string]any{"Image": iso}
	action := d.object("Actions", insertAction)
	allowed := action.texts("TransferProtocolType@Redfish.AllowableValues")
	info, err := c.find(ctx, action.text("@Redfish.ActionInfo"))
	if err != nil {
		return nil, err
	}
	params, _ := info.get("Parameters").([]any)
	for _, p := range params {
		fields, _ := p.(map[string]any)
		param := &document{body: fields}
		name := param.text("Name")
		if name == "TransferProtocolType" && allowed == nil {
			allowed = param.texts("AllowableValues")
		}
		if param.text("Required") == "true" {
			supply(body, name, iso)
		}
	}
	if want := protocolOf(iso); len(allowed) > 0 && !containsFold(allowed, want) {
		return nil, driver.Errorf(driver.CodeUnsupported, "the BMC fetches images by %s only; give an address of such a server", clip(strings.Join(allowed, ", "), 120))
	}
	return body, nil
}

func containsFold(list []string, s string) bool {
	for _, v := range list {
		if strings.EqualFold(v, s) {
			return true
		}
	}
	return false
}

// supply adds a parameter of InsertMedia by name, and reports whether it was missing and is known. Some BMCs demand a user
// and a password for a server that asks for none.
func supply(body map[string]any, name, iso string) bool {
	value, known := map[string]any{
		"TransferProtocolType": protocolOf(iso), "TransferMethod": "Stream", "UserName": blankSecret, "Password": blankSecret,
		"Inserted": true, "WriteProtected": true,
	}[name]
	if _, has := body[name]; has || !known {
		return false
	}
	body[name] = value
	return true
}

// adapt adds what a refusal says is missing, and reports whether there was such a thing. BMCs name it in a message's
// arguments, or in its text alone.
func adapt(body map[string]any, f fault, iso string) bool {
	if f.status != http.StatusBadRequest && f.status != http.StatusUnprocessableEntity {
		return false
	}
	if !f.is("ActionParameterMissing", "PropertyMissing", "CreateFailedMissingReqProperties") && !f.says("missing", "mandatory", "required") {
		return false
	}
	changed := false
	for _, name := range []string{"TransferProtocolType", "TransferMethod", "UserName", "Password", "Inserted", "WriteProtected"} {
		if f.names(name) && supply(body, name, iso) {
			changed = true
		}
	}
	return changed
}

// awaitFull reads until the drive shows the image.
func (m media) awaitFull(ctx *driver.Context, c *conn, at, iso string) error {
	var d drive
	var err error
	for range mediaReads {
		if d, err = c.drive(ctx, at); err == nil && d.shows(iso) {
			return nil
		}
		if err != nil && !driver.AsError(err).Retryable {
			return err
		}
		if err == nil && d.failed() != "" {
			break
		}
		ctx.Emit(driver.Progress{Phase: "media", Message: "waiting until the BMC shows the image"})
		if err := m.pause(ctx, pollEvery); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	why := d.failed()
	if why == "" {
		why = "it shows image \"" + imageName(d.image()) + "\", inserted " + firstOf(d.text("Inserted"), "nothing")
	}
	return driver.Errorf(driver.CodeNotApplied, "the BMC accepted the image and did not insert it: %s; check that the BMC's network reaches the address of the image", why).Again()
}

// failed is what the drive says of an image that it could not get; "" when it says nothing.
func (d drive) failed() string {
	if d.full() || !strings.EqualFold(d.text("Status", "Health"), "Critical") {
		return ""
	}
	list, _ := d.get("Status", "Conditions").([]any)
	for _, v := range list {
		fields, _ := v.(map[string]any)
		if t := (&document{body: fields}).text("Message"); t != "" {
			return clip(t, 200)
		}
	}
	return ""
}
