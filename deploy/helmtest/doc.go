// Package helmtest renders the chart of deploy/helm and compares it with the program. It is a
// separate Go module, because Helm and the types of Kubernetes would be the largest dependencies
// of the product.
package helmtest
