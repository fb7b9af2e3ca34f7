// Package cli contains the commands of headgate that call the REST API of an installation.
//
// Commands lists them. Package main of cmd/server adds Commands to the command line and binds a
// Terminal, so that a command is a struct whose fields are flags and whose Run method calls the
// API with a client. Data goes to standard output and messages to standard error. Each error
// has an exit code; see ExitCodes.
//
// The package depends on the contract in openapi.yaml only. It imports no service, so that a
// command can do nothing that another client of the API cannot do.
package cli
