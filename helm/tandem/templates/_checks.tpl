{{/* What a schema can't say: values that go together. Included once, by the router. */}}
{{- define "tandem.checks" -}}
{{- $etcd := .Values.etcd -}}
{{- if and (gt (int .Values.router.replicas) 1) (eq $etcd.mode "none") -}}
{{- fail (printf "router.replicas: %d routers need etcd to know the same workers: set etcd.mode" (int .Values.router.replicas)) -}}
{{- end -}}
{{- if and (eq $etcd.mode "external") (not $etcd.endpoints) -}}
{{- fail "etcd.endpoints: etcd.mode external needs at least one" -}}
{{- end -}}
{{- if and $etcd.endpoints (ne $etcd.mode "external") -}}
{{- fail (printf "etcd.endpoints: of no use with etcd.mode %s" $etcd.mode) -}}
{{- end -}}
{{- range $etcd.endpoints -}}
{{- if ne (hasPrefix "https://" .) (not (empty $etcd.tlsSecretName)) -}}
{{- fail (printf "etcd.tlsSecretName: goes with https:// endpoints, and %s is given %s" . (ternary "none" "one" (empty $etcd.tlsSecretName))) -}}
{{- end -}}
{{- end -}}
{{- range $key := list "tlsSecretName" "user" "passwordSecretName" -}}
{{- if and (get $etcd $key) (ne $etcd.mode "external") -}}
{{- fail (printf "etcd.%s: of no use with etcd.mode %s" $key $etcd.mode) -}}
{{- end -}}
{{- end -}}
{{- if ne (empty $etcd.user) (empty $etcd.passwordSecretName) -}}
{{- fail "etcd.user: goes with etcd.passwordSecretName" -}}
{{- end -}}
{{- if and (eq $etcd.mode "chart") (eq (mod (int $etcd.replicas) 2) 0) -}}
{{- fail (printf "etcd.replicas: %d is even, which outlives no more failures than one less" (int $etcd.replicas)) -}}
{{- end -}}
{{- if and .Values.tls.secretName (not .Values.tls.enabled) -}}
{{- fail "tls.secretName: of no use without tls.enabled" -}}
{{- end -}}
{{- if and .Values.tls.secretName .Values.tls.certManager.issuerRef -}}
{{- fail "tls.certManager.issuerRef: of no use with tls.secretName" -}}
{{- end -}}
{{- $pools := include "tandem.pools" . | fromYamlArray -}}
{{- $scaled := false -}}
{{- range $pools }}{{ if .autoscale }}{{ $scaled = true }}{{ end }}{{ end -}}
{{- if and (ne .Values.autoscaling.kind "none") (not $scaled) -}}
{{- fail (printf "autoscaling.kind: %s, but no pool has autoscale" .Values.autoscaling.kind) -}}
{{- end -}}
{{- end }}
