// Package agenttest holds both ends of the agent protocol for tests: Sim, the real agent with scripted handlers in place of
// hardware, and Site, a small appliance that signs commands and collects what agents say.
//
// Sim needs neither root nor a network of its own: it talks to a real agent listener, dies and restarts on demand, and
// counts how often each key really ran. Site listens on loopback or in memory; in memory it runs inside a synctest bubble.
package agenttest
