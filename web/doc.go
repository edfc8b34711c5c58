// Package web is the appliance's TLS server: console, API and assets on one listener.
//
// What every request meets is here: the path guard, security headers, request ids, cross-origin protection, time and size
// limits, and who it comes from. What it then does is in web/api (JSON) and web/console (pages). The agents' face is
// web/agentapi, on a listener and key of its own.
package web
