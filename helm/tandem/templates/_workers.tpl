{{/* The pod of a worker: (dict "root" ROOT "pool" POOL). */}}

{{- define "tandem.workerSelector" -}}
{{ include "tandem.selector" (list .root .pool.role) }}
tandem/pool: {{ .pool.name | quote }}
{{- end }}

{{- define "tandem.workerLabels" -}}
{{ include "tandem.labels" (list .root .pool.role) }}
tandem/pool: {{ .pool.name | quote }}
{{- end }}

{{- define "tandem.workerArgs" -}}
{{- $own := include "tandem.podAddress" .root -}}
{{ include "tandem.commonArgs" .root }}
- --name=$(POD_NAME)
- --grpc={{ $own }}:50051
- --http={{ $own }}:8080
{{- if eq .pool.role "decode" }}
- --data={{ $own }}:50053
{{- end }}
{{- if eq .root.Values.etcd.mode "none" }}
- --router={{ include "tandem.routersHost" .root }}:50052
{{- end }}
- --cache=/cache
- --grace={{ int .root.Values.requestTimeoutSeconds }}
{{- if .pool.slice }}
- --pjrt-plugin=/libtpu/libtpu.so
{{- end }}
{{- include "tandem.flags" .pool.flags }}
{{- end }}

{{/* kubelets have no certificate of the cluster: with TLS they ask over HTTP. */}}
{{- define "tandem.workerProbes" -}}
{{- $ready := dict "grpc" (dict "port" 50051) -}}
{{- if .root.Values.tls.enabled }}{{ $ready = dict "httpGet" (dict "path" "/ready" "port" "http") }}{{ end -}}
# Loads weights and compiles programs; until then there is no gRPC.
startupProbe:
  {{- toYaml $ready | nindent 2 }}
  periodSeconds: 10
  timeoutSeconds: 3
  failureThreshold: {{ div (add .pool.startupSeconds 9) 10 }}
livenessProbe:
  httpGet: {path: /health, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  {{- toYaml $ready | nindent 2 }}
  periodSeconds: 5
  timeoutSeconds: 3
{{- end }}

{{- define "tandem.workerResources" -}}
{{- $resources := deepCopy .pool.resources -}}
{{- if .pool.slice -}}
{{- range list "requests" "limits" -}}
{{- $_ := set $resources . (set (get $resources . | default dict) "google.com/tpu" (int $.pool.slice.chips)) -}}
{{- end -}}
{{- end -}}
{{ toYaml $resources }}
{{- end }}

{{- define "tandem.workerContainer" -}}
{{- $images := .root.Values.images -}}
name: worker
image: {{ include "tandem.image" (list .root (ternary $images.prefillWorker $images.decodeWorker (eq .pool.role "prefill"))) }}
imagePullPolicy: {{ $images.pullPolicy }}
args:
  {{- include "tandem.workerArgs" . | nindent 2 }}
env:
  {{- include "tandem.env" .pool.env | nindent 2 }}
ports:
  - {name: grpc, containerPort: 50051}
  - {name: http, containerPort: 8080}
  {{- if eq .pool.role "decode" }}
  - {name: data, containerPort: 50053}
  {{- end }}
{{ include "tandem.workerProbes" . }}
resources:
  {{- include "tandem.workerResources" . | nindent 2 }}
securityContext:
  {{- $security := include "tandem.containerSecurity" .root | fromYaml }}
  {{- if .pool.slice }}{{ $security = mergeOverwrite $security (deepCopy .root.Values.tpu.securityContext) }}{{ end }}
  {{- toYaml $security | nindent 2 }}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  - {name: cache, mountPath: /cache}
  {{- include "tandem.modelMount" .root | nindent 2 }}
  {{- include "tandem.secretMounts" .root | nindent 2 }}
  {{- if .pool.slice }}
  - {name: libtpu, mountPath: /libtpu, readOnly: true}
  - {name: shm, mountPath: /dev/shm}
  {{- end }}
{{- end }}

{{- define "tandem.workerInit" -}}
{{- include "tandem.modelFetch" (list .root true) }}
{{- if .pool.slice }}
- name: libtpu
  image: {{ .root.Values.tpu.libtpu.image }}
  imagePullPolicy: {{ .root.Values.images.pullPolicy }}
  command: [cp, {{ .root.Values.tpu.libtpu.path | quote }}, /libtpu/libtpu.so]
  resources:
    requests: {cpu: 100m, memory: 128Mi}
    limits: {memory: 1Gi}
  securityContext:
    {{- include "tandem.containerSecurity" .root | nindent 4 }}
  volumeMounts:
    - {name: libtpu, mountPath: /libtpu}
{{- end }}
{{- end }}

{{- define "tandem.workerVolumes" -}}
- name: tmp
  emptyDir: {}
- name: cache
  emptyDir: {sizeLimit: {{ .pool.cacheSize }}}
{{- include "tandem.modelVolume" (list .root true) }}
{{- include "tandem.secretVolumes" .root }}
{{- if .pool.slice }}
- name: libtpu
  emptyDir: {sizeLimit: 2Gi}
- name: shm
  emptyDir: {medium: Memory, sizeLimit: {{ .root.Values.tpu.sharedMemory }}}
{{- end }}
{{- end }}

{{/* metadata and spec of the pod. */}}
{{- define "tandem.workerPod" -}}
{{- $selector := dict -}}
{{- $tolerations := .pool.tolerations | default list -}}
{{- range $key, $value := .pool.nodeSelector }}{{ $_ := set $selector $key $value }}{{ end -}}
{{- with .pool.slice -}}
{{- $_ := set $selector "cloud.google.com/gke-tpu-accelerator" .accelerator -}}
{{- $_ := set $selector "cloud.google.com/gke-tpu-topology" .topology -}}
{{- $tolerations = append $tolerations (dict "key" "google.com/tpu" "operator" "Exists" "effect" "NoSchedule") -}}
{{- end -}}
metadata:
  labels:
    {{- include "tandem.workerSelector" . | nindent 4 }}
    {{- with .pool.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .pool.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- /* A worker that is told to end says so to the routers by itself, and what is placed on it already runs on. */}}
  {{- include "tandem.podBasics" (list .root .pool.role (add (int .root.Values.requestTimeoutSeconds) 30)) | nindent 2 }}
  {{- if eq (int .pool.hosts) 1 }}
  {{- include "tandem.spread" (include "tandem.workerSelector" .) | nindent 2 }}
  {{- end }}
  {{- include "tandem.placement" .pool | nindent 2 }}
  {{- with $selector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with include "tandem.workerInit" . | trim }}
  initContainers:
    {{- . | nindent 4 }}
  {{- end }}
  containers:
    - {{- include "tandem.workerContainer" . | nindent 6 }}
  volumes:
    {{- include "tandem.workerVolumes" . | nindent 4 }}
{{- end }}
