package api

import "slices"

// Parameters that several routes take.
var (
	paramLimit   = Param{"limit", "integer", "rows of a page, 1 to 1000"}
	paramAfter   = Param{"after", "string", "next of the page before"}
	paramMachine = Param{"machine", "string", "id or name of a machine"}
)

// table is the whole API. a may be nil when only the description is wanted.
func (a *API) table() []Route {
	return slices.Concat(
		a.sessionRoutes(),
		a.machineRoutes(), a.systemNetworkRoutes(), a.bootOrderRoutes(), a.kexecRoutes(), a.certificateRoutes(), a.verbRoutes(), a.serialRoutes(), a.discoveryRoutes(), a.portRoutes(),
		a.imageRoutes(), a.workflowRoutes(), a.eventRoutes(),
		a.networkRoutes(), a.driverRoutes(), a.pluginRoutes(), a.profileRoutes(), a.approvalRoutes(), a.testRoutes(),
		a.secretRoutes(), a.userRoutes(), a.siteRoutes(),
	)
}
