{{/* Metadata of an object: dict "root" $ "name" NAME "part" PART; PART is the value of the label that selects pods. */}}
{{- define "cloudgraft.metadata" -}}
name: {{ .name }}
namespace: {{ .namespace | default .root.Release.Namespace }}
{{ include "cloudgraft.labels" . }}
{{- end }}

{{/* The labels of an object, as one line. */}}
{{- define "cloudgraft.labels" -}}
{{- $more := "" }}
{{- if .root.Values.releaseLabels }}
{{- $chart := printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- $more = printf ", app.kubernetes.io/instance: %s, app.kubernetes.io/managed-by: %s, helm.sh/chart: %s" .root.Release.Name .root.Release.Service $chart }}
{{- end -}}
labels: {app.kubernetes.io/name: {{ .part }}{{ $more }}}
{{- end }}

{{/* The image of a container, and when it is pulled. */}}
{{- define "cloudgraft.image" -}}
image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- if ne .Values.image.pullPolicy "IfNotPresent" }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}
{{- end }}

{{/* The value of app.kubernetes.io/name, and the account, of the pod with the server. */}}
{{- define "cloudgraft.serverPart" -}}
{{ eq .Values.server.mode "sidecar" | ternary (include "cloudgraft.autoscalerName" .) .Values.name }}
{{- end }}

{{/* The autoscaler has its usual name, unless this is a second installation. */}}
{{- define "cloudgraft.autoscalerName" -}}
{{ eq .Values.name "cloudgraft" | ternary "cluster-autoscaler" (printf "%s-autoscaler" .Values.name) }}
{{- end }}

{{/* Whether the server's pod needs a token of its account. */}}
{{- define "cloudgraft.hasRights" -}}
{{- range $feature, $wanted := .Values.server.rights }}{{ if $wanted }}true{{ end }}{{ end }}
{{- if has "server" .Values.liqo.consumer }}true{{ end }}
{{- end }}

{{/* Whether the server calls a node manager or a dock of this release, for which it needs a certificate. */}}
{{- define "cloudgraft.isFront" -}}
{{- if and (ne .Values.server.mode "none") (or .Values.nodeManager.enabled (eq .Values.dock.mode "alone")) }}true{{ end }}
{{- end }}

{{/* A mapping as YAML on one line, with bare keys. */}}
{{- define "cloudgraft.inline" -}}
{{ regexReplaceAll ",\"([a-zA-Z][\\w-]*)\":" (regexReplaceAll "{\"([a-zA-Z][\\w-]*)\":" (toJson .) "{${1}: ") ", ${1}: " }}
{{- end }}
