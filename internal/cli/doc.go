// Package cli contains the commands of headgate that call the REST API of an installation.
//
// The struct Commands has a field for each command. Package main of cmd/server adds them to the
// command line. A command is a struct whose fields are its flags. Its method Run calls the API with
// a client, and gets a Terminal with the standard streams. Data is written to standard output and
// messages to standard error. Each error has an exit code; see ExitCodes.
//
// The package depends only on the contract in openapi.yaml, and imports no service. Therefore every
// other client of the API can do what a command does.
package cli
