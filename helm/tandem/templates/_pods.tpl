{{/* What pods have in common. */}}

{{- define "tandem.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "tandem.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Of a pod's spec: (list ROOT ACCOUNT GRACE). */}}
{{- define "tandem.podBasics" -}}
{{- $root := index . 0 -}}
serviceAccountName: {{ include "tandem.fullname" $root }}-{{ index . 1 }}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: {{ index . 2 }}
securityContext:
  {{- include "tandem.podSecurity" $root | nindent 2 }}
{{- with $root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ quote . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Where pods may go: of a pool, or of the router. */}}
{{- define "tandem.placement" -}}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ quote . }}
{{- end }}
{{- end }}

{{- define "tandem.spread" -}}
topologySpreadConstraints:
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- $ | nindent 8 }}
  {{- end }}
{{- end }}

{{/* Environment of every program: a worker is reached at its pod's address, under its pod's name. */}}
{{- define "tandem.env" -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- with . }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Arguments of every program: model, logs, traces, TLS, etcd. */}}
{{- define "tandem.commonArgs" -}}
- {{ printf "--model=%s" (include "tandem.modelFolder" .) | quote }}
- {{ printf "--model-name=%s" .Values.model.name | quote }}
- {{ printf "--log=%s" .Values.logs.filter | quote }}
{{- if .Values.logs.json }}
- --log-json
{{- end }}
{{- with .Values.otlp }}
- {{ printf "--otlp=%s" . | quote }}
{{- end }}
{{- if .Values.tls.enabled }}
- --tls=/tls
{{- end }}
{{- with include "tandem.etcdEndpoints" . }}
- {{ printf "--etcd=%s" . | quote }}
- {{ printf "--etcd-prefix=%s" ($.Values.etcd.prefix | default (printf "/tandem/%s/%s" $.Release.Namespace $.Release.Name)) | quote }}
{{- end }}
{{- if and (eq .Values.etcd.mode "chart") .Values.tls.enabled }}
- --etcd-tls=/tls
{{- else if .Values.etcd.tlsSecretName }}
- --etcd-tls=/etcd-tls
{{- end }}
{{- with .Values.etcd.user }}
- {{ printf "--etcd-user=%s" . | quote }}
- --etcd-password-file=/etcd-user/password
{{- end }}
{{- end }}

{{/* Secrets as folders, which follow the Secrets as they change. */}}
{{- define "tandem.secretMounts" -}}
{{- range include "tandem.secrets" . | fromYamlArray }}
- {name: {{ .name }}, mountPath: /{{ .name }}, readOnly: true}
{{- end }}
{{- end }}

{{- define "tandem.secretVolumes" -}}
{{- range include "tandem.secrets" . | fromYamlArray }}
- name: {{ .name }}
  secret:
    secretName: {{ .secret | quote }}
    defaultMode: 0440
{{- end }}
{{- end }}

{{- define "tandem.secrets" -}}
{{- $secrets := list -}}
{{- if .Values.tls.enabled }}{{ $secrets = append $secrets (dict "name" "tls" "secret" (include "tandem.tlsSecret" .)) }}{{ end -}}
{{- with .Values.etcd.tlsSecretName }}{{ $secrets = append $secrets (dict "name" "etcd-tls" "secret" .) }}{{ end -}}
{{- with .Values.etcd.passwordSecretName }}{{ $secrets = append $secrets (dict "name" "etcd-user" "secret" .) }}{{ end -}}
{{- toYaml $secrets -}}
{{- end }}
