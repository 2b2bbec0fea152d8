{{/*
The certificates that the parts of this release need, as YAML: name (the Secret has it with -tls), part, commonName,
hosts, usages, isLong and isHop. Both cert-manager and the Job are asked for these.
*/}}
{{- define "cloudgraft.certificates" -}}
{{- $name := .Values.name }}
{{- $here := printf "%s.svc" .Release.Namespace }}
{{- $everywhere := printf "%s.%s" $here .Values.clusterDomain }}
{{- if has .Values.server.mode (list "single" "replicas") }}
- name: {{ $name }}-server
  part: {{ $name }}
  commonName: {{ $name }}
  hosts: {{ concat (list (printf "%s.%s" $name $here) (printf "%s.%s" $name $everywhere) "localhost") .Values.certificates.hosts | toJson }}
  usages: [server auth]
- name: {{ $name }}-client
  part: {{ include "cloudgraft.autoscalerName" . }}
  commonName: {{ first .Values.server.allowedClients | toYaml }}
  hosts: [{{ first .Values.server.allowedClients | toYaml }}]
  usages: [client auth]
  isLong: true
{{- end }}
{{- if ne .Values.dock.mode "none" }}
- name: {{ $name }}-dock
  part: {{ eq .Values.dock.mode "alone" | ternary (printf "%s-dock" $name) $name }}
  commonName: {{ $name }}-dock
  hosts: {{ concat (list (printf "%s-dock.%s" $name $here) (printf "%s-dock.%s" $name $everywhere)) .Values.dock.hosts | toJson }}
  usages: [server auth]
{{- end }}
{{- if .Values.nodeManager.enabled }}
- name: {{ $name }}-node-manager
  part: {{ $name }}-node-manager
  commonName: {{ $name }}-node-manager
  hosts: {{ list (printf "%s-node-manager" $name) (printf "%s-node-manager.%s" $name $here) (printf "%s-node-manager.%s" $name $everywhere) | toJson }}
  usages: [server auth, client auth]
  isHop: true
{{- end }}
{{- if .Values.discovery.enabled }}
- name: {{ $name }}-discovery
  part: {{ $name }}-discovery
  commonName: {{ $name }}-discovery
  hosts: {{ concat (list (printf "%s-discovery.%s" $name $here) (printf "%s-discovery.%s" $name $everywhere)) .Values.discovery.hosts | toJson }}
  usages: [server auth]
  isHop: true
{{- end }}
{{- if include "cloudgraft.isFront" . }}
- name: {{ $name }}-front
  part: {{ $name }}-front
  commonName: {{ $name }}-front
  hosts: [{{ $name }}-front]
  usages: [client auth]
  isHop: true
{{- end }}
{{- end }}

{{/* The Certificates of cert-manager: dict "root" $ "hops" BOOL, those between cloudgraft's own parts or the others. */}}
{{- define "cloudgraft.certManagerCertificates" -}}
{{- $root := .root }}
{{- $hops := .hops }}
{{- $given := .root.Values.certificates }}
{{- if eq $given.mode "certManager" }}
{{- range include "cloudgraft.certificates" .root | fromYamlArray }}
{{- if eq (default false .isHop) $hops }}
{{- $times := default false .isLong | ternary $given.client $given.server }}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  {{- include "cloudgraft.metadata" (dict "root" $root "name" .name "part" .part) | nindent 2 }}
spec:
  secretName: {{ .name }}-tls
  commonName: {{ toYaml .commonName }}
  {{- $addresses := list }}
  dnsNames:
    {{- range .hosts }}
    {{- if regexMatch "^[0-9.]+$|:" . }}
    {{- $addresses = append $addresses (trimAll "[]" .) }}
    {{- else }}
    - {{ toYaml . }}
    {{- end }}
    {{- end }}
  {{- with $addresses }}
  ipAddresses: {{ toJson . }}
  {{- end }}
  usages: [digital signature, {{ join ", " .usages }}]
  duration: {{ $times.duration }}
  renewBefore: {{ $times.renewBefore }}
  privateKey: {algorithm: ECDSA, size: 256, rotationPolicy: Always}
  issuerRef: {{ $given.issuerRef | default (dict "name" (printf "%s-ca" $root.Values.name) "kind" "Issuer" "group" "cert-manager.io") | include "cloudgraft.inline" }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The pod that makes and renews certificates in Secrets. */}}
{{- define "cloudgraft.certificatesPod" -}}
{{- $name := printf "%s-certificates" .Values.name -}}
metadata:
  labels: {app.kubernetes.io/name: {{ $name }}}
spec:
  restartPolicy: OnFailure
  {{- include "cloudgraft.pod" (dict "root" $ "account" $name "token" true) | nindent 2 }}
  containers:
    - name: certificates
      {{- include "cloudgraft.image" . | nindent 6 }}
      args: [certs, secrets, --config, /etc/cloudgraft/config/certificates.yaml]
      resources:
        requests: {cpu: 100m, memory: 128Mi}
        limits: {memory: 256Mi}
      {{- include "cloudgraft.containerSecurity" . | nindent 6 }}
      volumeMounts:
        - {name: config, mountPath: /etc/cloudgraft/config, readOnly: true}
  volumes:
    - name: config
      configMap: {name: {{ $name }}}
{{- end }}

{{/* What that pod is asked for. */}}
{{- define "cloudgraft.certificatesFile" -}}
namespace: {{ .Release.Namespace }}
authority: {{ merge (dict "secret" (printf "%s-ca" .Values.name)) .Values.certificates.authority | include "cloudgraft.inline" }}
certificates:
  {{- range include "cloudgraft.certificates" . | fromYamlArray }}
  {{- $times := default false .isLong | ternary $.Values.certificates.client $.Values.certificates.server }}
  - secret: {{ .name }}-tls
    name: {{ toYaml .commonName }}
    hosts: {{ toJson .hosts }}
    usages: {{ toJson .usages }}
    duration: {{ $times.duration }}
    renewBefore: {{ $times.renewBefore }}
  {{- end }}
{{- end }}
