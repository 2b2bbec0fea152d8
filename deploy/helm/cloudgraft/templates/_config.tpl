{{/*
A part of a configuration that the user writes, as text or as a mapping: dict "given" VALUE "value" PATH "taken" LIST.
The keys in `taken` are the chart's; twice in one file, they would be refused with a line that nobody has written.
*/}}
{{- define "cloudgraft.ownConfig" -}}
{{- $parsed := .given }}
{{- if kindIs "string" .given }}
{{- $parsed = fromYaml .given }}
{{- if hasKey $parsed "Error" }}{{ fail (printf "%s is no YAML mapping: %s" .value (get $parsed "Error")) }}{{ end }}
{{- end }}
{{- $path := .value }}
{{- range .taken }}
{{- if hasKey $parsed . }}{{ fail (printf "%s must not have `%s`: the chart writes that section; docs/how-to/deploy-to-kubernetes.md says from which values" $path .) }}{{ end }}
{{- end }}
{{- if kindIs "string" .given }}{{ .given | trim }}{{ else if .given }}{{ toYaml .given }}{{ end }}
{{- end }}

{{/* cloudgraft.yaml of the server. */}}
{{- define "cloudgraft.serverConfig" -}}
{{- $server := .Values.server -}}
cluster: {{ $server.cluster }}
server:
{{- if eq $server.mode "sidecar" }}
  listen: 127.0.0.1:8086 # the autoscaler is in the same pod
{{- else }}
  listen: 0.0.0.0:8086
  tls:
    cert: /etc/cloudgraft/tls/tls.crt
    key: /etc/cloudgraft/tls/tls.key
    clientCA: /etc/cloudgraft/tls/ca.crt
    allowedClients: [{{ range $index, $name := $server.allowedClients }}{{ if $index }}, {{ end }}{{ toYaml $name }}{{ end }}]
{{- end }}
  ops: 0.0.0.0:8087
{{- with $server.settings }}
{{ toYaml . | indent 2 }}
{{- end }}
log: {level: {{ $server.log.level }}, format: {{ $server.log.format }}}
{{- if eq $server.mode "replicas" }}
admin: {listen: "unix:/tmp/cloudgraft.sock"}
store:
  postgresql: {{ $server.postgresql.address }}
  user: {{ $server.postgresql.user }}
  passwordFile: /etc/cloudgraft/db/password
  ca: /etc/cloudgraft/db/ca.crt
{{- with $server.store }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- else if $server.store }}
store:
  path: /var/lib/cloudgraft/journal.db
{{ toYaml $server.store | indent 2 }}
{{- else }}
store: {path: /var/lib/cloudgraft/journal.db}
{{- end }}
{{- if eq .Values.dock.mode "server" }}
{{ include "cloudgraft.dockSection" . }}
{{- end }}
{{ include "cloudgraft.ownConfig" (dict "given" $server.config "value" "server.config" "taken" (list "cluster" "server" "log" "store" "admin" "dock")) }}
{{- end }}

{{/* The section `dock`. */}}
{{- define "cloudgraft.dockSection" -}}
dock:
  listen: 0.0.0.0:5000
  tls:
    cert: /etc/cloudgraft/dock/tls.crt
    key: /etc/cloudgraft/dock/tls.key
    clientCA: /etc/cloudgraft/dock/ca.crt
{{- with include "cloudgraft.ownConfig" (dict "given" .Values.dock.config "value" "dock.config" "taken" (list "listen" "tls")) }}
{{ . | indent 2 }}
{{- end }}
{{- end }}
