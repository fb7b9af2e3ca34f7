// Package alerts compares counted figures with thresholds. It sends a message when an alert begins
// and when it ends.
//
// A [Rule] names a figure, a threshold and the channels to which messages are sent. Only the
// [Evaluator] of the node that holds a lease evaluates the rules. It measures the figure of each
// rule and computes the next [State] of the rule. When an alert begins or ends, the Store writes
// the state, the [Incident] and one [Delivery] for each channel in one transaction. Therefore no
// message is lost between the decision and the queue, and a second evaluator cannot queue the
// message again.
//
// Every node runs a [Sender]. It claims deliveries that are due and sends them. A claim ends after
// a minute. If the sender has stopped, another node then sends the delivery. A receiver can get a
// message twice. This happens if a node stops after the receiver has responded and before the node
// has stored the result. Both messages have the same webhook-id.
package alerts
