{{- define "headgate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "headgate.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: node
{{- end -}}

{{- /* The labels of all objects, without the component: a Job of the chart is no node. */ -}}
{{- define "headgate.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "headgate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- /* The values that become a Secret: its key, by the name of the value. */ -}}
{{- define "headgate.secretKeys" -}}
databaseURL: database-url
redisURL: redis-url
bootstrapKey: bootstrap-key
adminPassword: admin-password
oidcClientSecret: oidc-client-secret
smtpPassword: smtp-password
secretsKey: secrets-key
secretsKeyOld: secrets-key-old
envoyKey: envoy-key
{{- end -}}

{{- define "headgate.checkSecret" -}}
{{- $given := list -}}
{{- range $value, $key := include "headgate.secretKeys" . | fromYaml -}}
{{- if get $.Values.secret $value }}{{ $given = append $given (printf "secret.%s" $value) }}{{ end -}}
{{- end -}}
{{- if and .Values.secret.existingSecret $given -}}
{{- fail (printf "set secret.existingSecret or %s, and not both" (join ", " $given)) -}}
{{- end -}}
{{- if not (or .Values.secret.existingSecret .Values.secret.databaseURL) -}}
{{- fail "set secret.existingSecret, or secret.databaseURL to the Postgres of Headgate" -}}
{{- end -}}
{{- $several := or .Values.autoscaling.enabled (gt (int .Values.replicaCount) 1) -}}
{{- if and $several (not .Values.secret.existingSecret) (not .Values.secret.redisURL) -}}
{{- fail "set secret.redisURL: several nodes share limits in Redis" -}}
{{- end -}}
{{- end -}}

{{- define "headgate.secretName" -}}
{{- default (include "headgate.fullname" .) .Values.secret.existingSecret -}}
{{- end -}}

{{- define "headgate.nodes" -}}
{{- $count := ternary .Values.autoscaling.maxReplicas .Values.replicaCount .Values.autoscaling.enabled -}}
{{- default $count .Values.nodes | int -}}
{{- end -}}

{{- /* The ports that are open, in the order of the Services. */ -}}
{{- define "headgate.ports" -}}
{{- $open := list "http" -}}
{{- range list "metrics" "resp" "envoy" }}{{ if (get $.Values .).enabled }}{{ $open = append $open . }}{{ end }}{{ end -}}
{{- join " " $open -}}
{{- end -}}

{{- define "headgate.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}
