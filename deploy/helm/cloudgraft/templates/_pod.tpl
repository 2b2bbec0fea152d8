{{/* What every pod of the chart has: dict "root" $ "account" NAME "token" BOOL, and "more" SECONDS to end in. */}}
{{- define "cloudgraft.pod" -}}
serviceAccountName: {{ .account }}
automountServiceAccountToken: {{ .token }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - {name: {{ . }}}
  {{- end }}
{{- end }}
{{- with .root.Values.pod.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.pod.nodeSelector }}
nodeSelector: {{ include "cloudgraft.inline" . }}
{{- end }}
{{- with .root.Values.pod.tolerations }}
tolerations:
  {{- range . }}
  - {{ include "cloudgraft.inline" . }}
  {{- end }}
{{- end }}
terminationGracePeriodSeconds: {{ add .root.Values.pod.terminationGracePeriodSeconds (.more | default 0) }}
{{- with .spread }}
topologySpreadConstraints: # not on one host, if there are others
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {app.kubernetes.io/name: {{ . }}}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .root.Values.pod.user }}
  runAsGroup: {{ .root.Values.pod.user }}
  fsGroup: {{ .root.Values.pod.user }} # lets that group read the mounted keys, and write the volume
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "cloudgraft.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* Probes: dict "port" NAME "scheme" HTTP|HTTPS, and "ready" SECONDS between two looks whether it is ready. */}}
{{- define "cloudgraft.probes" -}}
{{- $more := eq .scheme "HTTPS" | ternary ", scheme: HTTPS" "" -}}
startupProbe: # the store may have to be brought up to date first
  httpGet: {path: /healthz, port: {{ .port }}{{ $more }}}
  periodSeconds: 2
  failureThreshold: 60
readinessProbe:
  httpGet: {path: /readyz, port: {{ .port }}{{ $more }}}
  periodSeconds: {{ .ready | default 5 }}
livenessProbe:
  httpGet: {path: /healthz, port: {{ .port }}{{ $more }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{- end }}

{{/* Labels and annotations of a pod: dict "root" $ "part" PART "ops" PORT or "". */}}
{{- define "cloudgraft.podMetadata" -}}
labels: {app.kubernetes.io/name: {{ .part }}}
{{- if and .ops .root.Values.monitoring.scrapeAnnotations }}
annotations:
  prometheus.io/scrape: "true"
  prometheus.io/port: {{ .ops | quote }}
{{- end }}
{{- end }}

{{/* The user's own mounts: a list of {as, secret|configMap}. */}}
{{- define "cloudgraft.mounts" -}}
{{- range . }}
- {name: own-{{ .as }}, mountPath: /etc/cloudgraft/{{ .as }}, readOnly: true}
{{- end }}
{{- end }}
{{- define "cloudgraft.mountedVolumes" -}}
{{- range . }}
- name: own-{{ .as }}
  {{- if .secret }}
  secret: {secretName: {{ .secret }}, defaultMode: 0440}
  {{- else }}
  configMap: {name: {{ .configMap }}}
  {{- end }}
{{- end }}
{{- end }}

{{/*
A Secret with a certificate: dict "volume" NAME "secret" NAME. Its keys are named, so that a pod waits for a Secret that
is not filled yet, in place of failing for want of a file.
*/}}
{{- define "cloudgraft.certificateVolume" -}}
- name: {{ .volume }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items:
      - {key: tls.crt, path: tls.crt}
      - {key: tls.key, path: tls.key}
      - {key: ca.crt, path: ca.crt}
{{- end }}

{{- define "cloudgraft.tmpVolume" -}}
- name: tmp # sockets of operators and plugins, user data for scripts of the driver exec, and HOME
  emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- end }}

{{/* A claim: dict "root" $ "name" NAME "part" PART "volume" VALUES. */}}
{{- define "cloudgraft.claim" -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  {{- include "cloudgraft.metadata" . | nindent 2 }}
  {{- if .volume.keep }}
  annotations: {helm.sh/resource-policy: keep}
  {{- end }}
spec:
  # Of the cluster's default StorageClass; where there is none, as kubeadm leaves it, name one: storageClassName.
  {{- with .volume.storageClass }}
  storageClassName: {{ . }}
  {{- end }}
  accessModes: [ReadWriteOnce] # a disk, not a network file system: a commit must be on it when it says so
  resources:
    requests: {storage: {{ .volume.size }}}
{{- end }}

{{/* A budget: dict "root" $ "name" NAME. */}}
{{- define "cloudgraft.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "cloudgraft.metadata" (dict "root" .root "name" .name "part" .name) | nindent 2 }}
spec:
  # For the autoscaler, which removes no node with a pod of kube-system that has no budget. It holds no pod back: one is
  # enough to work, and a replica that waits is never ready, so that a smaller number would keep the leader on its node.
  maxUnavailable: "100%"
  {{- if semverCompare ">=1.27.0-0" .root.Capabilities.KubeVersion.Version }}
  unhealthyPodEvictionPolicy: AlwaysAllow # nor one that is not ready. In effect since 1.27; delete this line for 1.25
  {{- end }}
  selector:
    matchLabels: {app.kubernetes.io/name: {{ .name }}}
{{- end }}

{{/* The way to the cluster's DNS, as a rule of egress. */}}
{{- define "cloudgraft.dnsEgress" -}}
- ports: # names, of the cluster's DNS or of a cache on each host
    {{- range .Values.networkPolicy.dnsPorts }}
    - {protocol: UDP, port: {{ . }}}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end }}

{{/* Ports to anywhere, as a rule of egress: a list. None, no rule: one without ports would open all. */}}
{{- define "cloudgraft.portsEgress" -}}
{{- if . -}}
- ports:
    {{- range . }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end }}
{{- end }}
