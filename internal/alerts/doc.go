// Package alerts compares counted figures with thresholds and sends a message when an
// alert begins and when it ends.
//
// A [Rule] names a figure, a threshold and the channels that get the messages. One node
// evaluates all rules: the [Evaluator] that holds the lease. It measures the figure of
// each rule and advances the rule's [State]. When a state begins or stops firing, the
// Store writes the state, the [Incident] and one [Delivery] for each channel in one
// transaction. So no message is lost between the decision and the queue, and a second
// evaluator cannot queue it again.
//
// Every node runs a [Sender]. It claims deliveries that are due and posts them. A claim
// ends after a minute, so another node continues when a sender stops. A receiver can get
// a message twice if a node stops between the answer of the receiver and the end of the
// delivery; both have the same webhook-id.
package alerts
