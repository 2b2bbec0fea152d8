{{/* The server's container, in a pod of its own or beside the autoscaler. */}}
{{- define "cloudgraft.serverContainer" -}}
- name: cloudgraft
  {{- include "cloudgraft.image" . | nindent 2 }}
  args: [serve, --config, /etc/cloudgraft/config/cloudgraft.yaml]
  {{- $isReplicated := eq .Values.server.mode "replicas" }}
  {{- if or $isReplicated .Values.server.env }}
  env:
    {{- if $isReplicated }}
    # By it a pod knows that the leader is of another rollout: then it is ready, takes over, and calls wait for that.
    - {name: CLOUDGRAFT_ROLLOUT, valueFrom: {fieldRef: {fieldPath: "metadata.labels['pod-template-hash']"}}}
    {{- end }}
    {{- with .Values.server.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  ports:
    {{- if ne .Values.server.mode "sidecar" }}
    - {name: grpc, containerPort: 8086}
    {{- end }}
    - {name: ops, containerPort: 8087}
    {{- if eq .Values.dock.mode "server" }}
    - {name: dock, containerPort: 5000}
    {{- end }}
  {{- include "cloudgraft.probes" (dict "port" "ops" "scheme" "HTTP" "ready" ($isReplicated | ternary 1 5)) | nindent 2 }}
  resources:
    {{- range $kind, $amounts := .Values.server.resources }}
    {{ $kind }}: {{ include "cloudgraft.inline" $amounts }}
    {{- end }}
  {{- include "cloudgraft.containerSecurity" . | nindent 2 }}
  volumeMounts:
    # Directories, not single files: with subPath a renewed certificate would never arrive.
    - {name: config, mountPath: /etc/cloudgraft/config, readOnly: true}
    {{- if ne .Values.server.mode "sidecar" }}
    - {name: tls, mountPath: /etc/cloudgraft/tls, readOnly: true}
    {{- end }}
    {{- if eq .Values.server.mode "replicas" }}
    - {name: db, mountPath: /etc/cloudgraft/db, readOnly: true}
    {{- else }}
    - {name: journal, mountPath: /var/lib/cloudgraft}
    {{- end }}
    {{- if eq .Values.dock.mode "server" }}
    - {name: dock, mountPath: /etc/cloudgraft/dock, readOnly: true}
    {{- end }}
    {{- if include "cloudgraft.isFront" . }}
    - {name: front, mountPath: /etc/cloudgraft/front, readOnly: true}
    {{- end }}
    {{- include "cloudgraft.mounts" .Values.server.mounts | indent 4 }}
    - {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "cloudgraft.serverVolumes" -}}
- name: config
  configMap: {name: {{ .Values.name }}}
{{- if ne .Values.server.mode "sidecar" }}
{{ include "cloudgraft.certificateVolume" (dict "volume" "tls" "secret" (printf "%s-server-tls" .Values.name)) }}
{{- end }}
{{- if eq .Values.server.mode "replicas" }}
- name: db
  secret: {secretName: {{ .Values.server.postgresql.secret }}, defaultMode: 0440}
{{- else }}
- name: journal
  persistentVolumeClaim: {claimName: {{ .Values.server.volume.existingClaim | default (printf "%s-journal" .Values.name) }}}
{{- end }}
{{- if eq .Values.dock.mode "server" }}
{{ include "cloudgraft.certificateVolume" (dict "volume" "dock" "secret" (printf "%s-dock-tls" .Values.name)) }}
{{- end }}
{{- if include "cloudgraft.isFront" . }}
{{ include "cloudgraft.certificateVolume" (dict "volume" "front" "secret" (printf "%s-front-tls" .Values.name)) }}
{{- end }}
{{- include "cloudgraft.mountedVolumes" .Values.server.mounts }}
{{ include "cloudgraft.tmpVolume" . }}
{{- end }}
