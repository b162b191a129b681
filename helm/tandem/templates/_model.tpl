{{/* Where the checkpoint comes from. */}}

{{/* model.source in parts: {scheme, host, path}. */}}
{{- define "tandem.modelSource" -}}
{{- $source := .Values.model.source -}}
{{- if hasPrefix "image:" $source -}}
{{- dict "scheme" "image" "path" (trimPrefix "image:" $source) | toYaml -}}
{{- else -}}
{{- $parts := splitn "://" 2 $source -}}
{{- $place := splitn "/" 2 $parts._1 -}}
{{- dict "scheme" $parts._0 "host" $place._0 "path" ($place._1 | default "" | trimSuffix "/") | toYaml -}}
{{- end -}}
{{- end }}

{{/* Folder of the checkpoint inside a container. */}}
{{- define "tandem.modelFolder" -}}
{{- $source := include "tandem.modelSource" . | fromYaml -}}
{{- if eq $source.scheme "image" }}{{ $source.path }}{{ else }}/model{{ end -}}
{{- end }}

{{- define "tandem.modelMount" -}}
{{- $source := include "tandem.modelSource" . | fromYaml -}}
{{- if ne $source.scheme "image" }}
- name: model
  mountPath: /model
  readOnly: true
  {{- if and (eq $source.scheme "pvc") $source.path }}
  subPath: {{ $source.path | quote }}
  {{- end }}
{{- end }}
{{- end }}

{{/* (list ROOT WEIGHTS): whether weights have to fit. */}}
{{- define "tandem.modelVolume" -}}
{{- $root := first . -}}
{{- $source := include "tandem.modelSource" $root | fromYaml -}}
{{- $fetch := $root.Values.model.fetch -}}
{{- if eq $source.scheme "pvc" }}
- name: model
  persistentVolumeClaim:
    claimName: {{ $source.host | quote }}
    readOnly: true
{{- else if ne $source.scheme "image" }}
- name: model
  {{- if not (last .) }}
  emptyDir: {sizeLimit: 1Gi}
  {{- else if $fetch.storageClass }}
  ephemeral:
    volumeClaimTemplate:
      spec:
        accessModes: [ReadWriteOnce]
        storageClassName: {{ $fetch.storageClass | quote }}
        resources:
          requests:
            storage: {{ $fetch.size }}
  {{- else }}
  emptyDir: {sizeLimit: {{ $fetch.size }}}
  {{- end }}
{{- end }}
{{- end }}

{{/* The container that copies it, checksums compared: (list ROOT WEIGHTS). */}}
{{- define "tandem.modelFetch" -}}
{{- $root := first . -}}
{{- $source := include "tandem.modelSource" $root | fromYaml -}}
{{- $fetch := $root.Values.model.fetch -}}
{{- if has $source.scheme (list "gs" "s3") }}
- name: fetch-model
  image: {{ $root.Values.images.fetch }}
  imagePullPolicy: {{ $root.Values.images.pullPolicy }}
  args:
    - copy
    - {{ printf ":%s:%s" (ternary "gcs" "s3" (eq $source.scheme "gs")) (list $source.host $source.path | compact | join "/") | quote }}
    - /model
    - --config=
    - --cache-dir=/tmp
    - --transfers=8
    - --multi-thread-streams=8
    - --retries=10
    - --retries-sleep=10s
    - --stats=30s
    - --stats-one-line
    - --log-level=INFO
    {{- if not (last .) }}
    - --exclude=*.safetensors
    {{- end }}
  env:
    {{- if eq $source.scheme "gs" }}
    - {name: RCLONE_GCS_BUCKET_POLICY_ONLY, value: "true"}
    {{- else }}
    - {name: RCLONE_S3_PROVIDER, value: {{ $fetch.s3.provider | quote }}}
    - {name: RCLONE_S3_ENV_AUTH, value: "true"}
    {{- with $fetch.s3.region }}
    - {name: RCLONE_S3_REGION, value: {{ . | quote }}}
    {{- end }}
    {{- with $fetch.s3.endpoint }}
    - {name: RCLONE_S3_ENDPOINT, value: {{ . | quote }}}
    {{- end }}
    {{- end }}
  {{- with $fetch.credentialsSecret }}
  envFrom:
    - secretRef: {name: {{ quote . }}}
  {{- end }}
  resources:
    {{- toYaml $fetch.resources | nindent 4 }}
  securityContext:
    {{- include "tandem.containerSecurity" $root | nindent 4 }}
  volumeMounts:
    - {name: model, mountPath: /model}
    - {name: tmp, mountPath: /tmp}
{{- end }}
{{- end }}
