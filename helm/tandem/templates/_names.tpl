{{/* Names and labels. */}}

{{/* At most 26 characters, beginning with a letter: with role, pool and ordinals the longest name stays a label. */}}
{{- define "tandem.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- $full := .Values.fullnameOverride | default (ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name)) -}}
{{- $full = $full | lower | replace "." "-" -}}
{{- if not (regexMatch "^[a-z]" $full) }}{{ $full = printf "t-%s" $full }}{{ end -}}
{{- if gt (len $full) 26 -}}
{{- printf "%s-%s" (trunc 20 $full | trimSuffix "-") (sha256sum $full | trunc 5) -}}
{{- else -}}
{{- $full -}}
{{- end -}}
{{- end }}

{{/* Labels that select: (list ROOT COMPONENT). */}}
{{- define "tandem.selector" -}}
{{- $root := first . -}}
app.kubernetes.io/name: {{ $root.Values.nameOverride | default $root.Chart.Name | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ last . }}
{{- end }}

{{/* All labels of an object: (list ROOT COMPONENT). */}}
{{- define "tandem.labels" -}}
{{- $root := first . -}}
{{ include "tandem.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/part-of: tandem
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name ($root.Chart.Version | replace "+" "_") }}
{{- end }}

{{/* Image of one of the three programs: (list ROOT NAME). */}}
{{- define "tandem.image" -}}
{{- $root := first . -}}
{{- with $root.Values.images -}}
{{- if .registry }}{{ trimSuffix "/" .registry }}/{{ end }}{{ last $ }}:{{ .tag | default $root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* All addresses of this pod, to bind to. */}}
{{- define "tandem.anyAddress" -}}
{{ ternary "[::]" "0.0.0.0" (eq .Values.ipFamily "IPv6") }}
{{- end }}

{{/* This pod's own address: a worker is reached at what it binds to. */}}
{{- define "tandem.podAddress" -}}
{{ ternary "[$(POD_IP)]" "$(POD_IP)" (eq .Values.ipFamily "IPv6") }}
{{- end }}

{{/* Where workers join, and KEDA asks: routers are there before they are ready. */}}
{{- define "tandem.routersHost" -}}
{{ include "tandem.fullname" . }}-routers.{{ .Release.Namespace }}.svc
{{- end }}

{{- define "tandem.tlsSecret" -}}
{{ .Values.tls.secretName | default (printf "%s-members" (include "tandem.fullname" .)) }}
{{- end }}

{{/* etcd's endpoints, comma separated; empty without etcd. */}}
{{- define "tandem.etcdEndpoints" -}}
{{- if eq .Values.etcd.mode "external" -}}
{{- join "," .Values.etcd.endpoints -}}
{{- else if eq .Values.etcd.mode "chart" -}}
{{- printf "%s://%s-etcd.%s.svc:2379" (ternary "https" "http" .Values.tls.enabled) (include "tandem.fullname" .) .Release.Namespace -}}
{{- end -}}
{{- end }}
