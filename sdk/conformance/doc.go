// Command conformance runs another command with a real Headgate server and a server that
// fails on purpose:
//
//	go run . -server ../../bin/headgate -- npm test
//
// The tests of every SDK read scenarios.json and the environment that this command sets:
//
//	HEADGATE_URL          address of the server, with the plan of scenarios.json
//	HEADGATE_TOKEN        operator key
//	HEADGATE_KEY          key of the tenant "conformance", with the scope check
//	HEADGATE_FAULTS_URL   address of the server of faults
//	HEADGATE_REFUSED_URL  address that refuses connections
//	HEADGATE_SCENARIOS    path of scenarios.json
//
// The server of faults answers POST /<scenario>/<run>/v1/check with the next entry of the
// scenario's faults, and GET /<scenario>/<run>/calls with the calls that it received.
package main
