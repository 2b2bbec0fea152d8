{{/* Refuses what the schema cannot: values that do not go together, and names that are the chart's own. */}}
{{- define "cloudgraft.check" -}}
{{- include "cloudgraft.checkModes" . }}
{{- include "cloudgraft.checkNames" . }}
{{- include "cloudgraft.checkClients" . }}
{{- end }}

{{- define "cloudgraft.checkModes" -}}
{{- $v := .Values }}
{{- $server := $v.server.mode }}
{{- if and (eq $server "sidecar") (ne $v.autoscaler.mode "own") }}
{{- fail "server.mode sidecar needs autoscaler.mode own: the server is a container of the autoscaler's pod" }}
{{- end }}
{{- if and (eq $server "sidecar") (eq $v.dock.mode "server") }}
{{- fail "server.mode sidecar has no dock of its own: use dock.mode alone" }}
{{- end }}
{{- if and (eq $server "none") (eq $v.dock.mode "server") }}
{{- fail "dock.mode server needs a server: set server.mode, or use dock.mode alone" }}
{{- end }}
{{- if and (eq $server "none") (ne $v.autoscaler.mode "none") }}
{{- fail "server.mode none needs autoscaler.mode none: the autoscaler would have nothing to call" }}
{{- end }}
{{- if and (eq $server "replicas") (not $v.server.postgresql.address) }}
{{- fail "server.mode replicas needs server.postgresql.address, such as db.example/cloudgraft: replicas share a journal in PostgreSQL" }}
{{- end }}
{{- if and (eq $server "replicas") $v.server.maxUnavailable (lt (int $v.server.maxUnavailable) (sub (int $v.server.replicas) 1)) }}
{{- fail "server.maxUnavailable must be 0, or at least server.replicas less one: with fewer, an update stops halfway, since the replicas that wait are never ready" }}
{{- end }}
{{- if and (has "nodeManager" $v.liqo.consumer) (not $v.nodeManager.enabled) }}
{{- fail "liqo.consumer names nodeManager, which is not enabled: set nodeManager.enabled" }}
{{- end }}
{{- if and (has "server" $v.liqo.consumer) (eq $server "none") }}
{{- fail "liqo.consumer names server, and server.mode is none: set server.mode, or take it out" }}
{{- end }}
{{- if and $v.certificates.issuerRef (ne $v.certificates.mode "certManager") }}
{{- fail "certificates.issuerRef is for certificates.mode certManager only" }}
{{- end }}
{{- if and (eq $server "none") (eq $v.dock.mode "none") (not (or $v.nodeManager.enabled $v.discovery.enabled $v.agent.enabled $v.liqo.provider)) }}
{{- fail "nothing is switched on: set server.mode, or one of dock.mode, nodeManager.enabled, discovery.enabled, agent.enabled, liqo.provider" }}
{{- end }}
{{- end }}

{{/* The clients in values.yaml have the names of a release called cloudgraft; with those, another one lets nobody in. */}}
{{- define "cloudgraft.checkClients" -}}
{{- $v := .Values }}
{{- $expected := list }}
{{- if and $v.nodeManager.enabled (include "cloudgraft.isFront" .) }}
{{- $expected = append $expected (dict "path" "nodeManager.clients" "clients" $v.nodeManager.clients "part" "front") }}
{{- end }}
{{- if and $v.discovery.enabled $v.nodeManager.enabled }}
{{- $expected = append $expected (dict "path" "discovery.clients" "clients" $v.discovery.clients "part" "node-manager") }}
{{- end }}
{{- range $expected }}
{{- $usual := printf "cloudgraft-%s" .part }}
{{- $own := printf "%s-%s" $v.name .part }}
{{- $certificates := list }}
{{- range .clients }}{{ $certificates = append $certificates (get . "certificate") }}{{ end }}
{{- if and (has $usual $certificates) (not (has $own $certificates)) }}
{{- fail (printf "%s has the certificate %s, and that of this release is %s: name it there" .path $usual $own) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "cloudgraft.checkNames" -}}
{{- $v := .Values }}
{{- if or (eq $v.image.tag "latest") (eq $v.autoscaler.image.tag "latest") }}
{{- fail "the tag of an image must name a release: with latest, a restart is an upgrade" }}
{{- end }}
{{- range $path, $mounts := dict "server.mounts" $v.server.mounts "dock.mounts" $v.dock.mounts "nodeManager.mounts" $v.nodeManager.mounts }}
{{- range $mounts }}
{{- if has .as (list "config" "tls" "db" "dock" "front") }}
{{- fail (printf "%s: /etc/cloudgraft/%s is the chart's own directory: give `as` another name" $path .as) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $flag := list "cloud-provider" "cloud-config" "namespace" "leader-elect-resource-name" "status-config-map-name" }}
{{- if hasKey $v.autoscaler.flags $flag }}
{{- fail (printf "autoscaler.flags must not have %s: the chart decides it" $flag) }}
{{- end }}
{{- end }}
{{- range $key := list "path" "postgresql" "user" "passwordFile" "ca" }}
{{- if hasKey $v.server.store $key }}
{{- fail (printf "server.store must not have `%s`: the chart writes it" $key) }}
{{- end }}
{{- end }}
{{- range $key := list "listen" "tls" "ops" }}
{{- if hasKey $v.server.settings $key }}
{{- fail (printf "server.settings must not have `%s`: the chart writes it" $key) }}
{{- end }}
{{- end }}
{{- end }}
