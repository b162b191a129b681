{{/* From values to pools as they are meant: checked, with defaults filled in, as a YAML list. */}}

{{/* A slice's {accelerator, topology, chips, hosts}: (list ROOT WHERE SLICE). */}}
{{- define "tandem.slice" -}}
{{- $root := index . 0 -}}{{- $where := index . 1 -}}{{- $slice := index . 2 -}}
{{- $known := $root.Files.Get "files/slices.yaml" | fromYaml -}}
{{- $parts := splitn "-" 2 $slice -}}
{{- if not (hasKey $known $parts._0) -}}
{{- fail (printf "%s.slice: %q is no TPU slice: accelerators are %s, as in v6e-16" $where $slice (keys $known | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $family := get $known $parts._0 -}}
{{- $topology := get $family.topologies ($parts._1 | default "") -}}
{{- if not $topology -}}
{{- $sizes := list -}}
{{- range $size, $_ := $family.topologies }}{{ $sizes = append $sizes (printf "%6s" $size) }}{{ end -}}
{{- $names := list -}}
{{- range sortAlpha $sizes }}{{ $names = append $names (printf "%s-%s" $parts._0 (trim .)) }}{{ end -}}
{{- fail (printf "%s.slice: %q is not offered: %s" $where $slice (join ", " $names)) -}}
{{- end -}}
{{- $total := int $parts._1 -}}
{{- $chips := min 4 $total -}}
{{- dict "accelerator" $family.accelerator "topology" $topology "chips" $chips "hosts" (div $total $chips) | toYaml -}}
{{- end }}

{{/* One pool: (list ROOT ROLE INDEX POOL). */}}
{{- define "tandem.pool" -}}
{{- $root := index . 0 -}}{{- $role := index . 1 -}}{{- $pool := index . 3 -}}
{{- $where := printf "pools.%s[%d] (%s)" $role (index . 2) $pool.name -}}
{{- $flags := dict -}}
{{- range $key, $value := $root.Values.workers.flags }}{{ $_ := set $flags $key $value }}{{ end -}}
{{- range $key, $value := $pool.flags }}{{ $_ := set $flags $key $value }}{{ end -}}
{{- $slice := dict -}}
{{- if $pool.slice -}}
{{- $slice = include "tandem.slice" (list $root $where $pool.slice) | fromYaml -}}
{{- if and (gt (int $slice.hosts) 1) (not $pool.multiHost) -}}
{{- fail (printf "%s.slice: %s spans %d hosts: set multiHost: true, after reading in README.md what that needs" $where $pool.slice (int $slice.hosts)) -}}
{{- end -}}
{{- if and (eq (int $slice.hosts) 1) $pool.multiHost -}}
{{- fail (printf "%s.multiHost: %s is one host" $where $pool.slice) -}}
{{- end -}}
{{- if not $root.Values.tpu.libtpu.image -}}
{{- fail (printf "%s.slice: needs tpu.libtpu.image, an image that has the TPU runtime" $where) -}}
{{- end -}}
{{- else if $pool.multiHost -}}
{{- fail (printf "%s.multiHost: needs a slice" $where) -}}
{{- end -}}
{{- if and $pool.autoscale (hasKey $pool "replicas") -}}
{{- fail (printf "%s.replicas: of no use with autoscale" $where) -}}
{{- else if not (or $pool.autoscale (hasKey $pool "replicas")) -}}
{{- fail (printf "%s.replicas: is missing, as is autoscale" $where) -}}
{{- end -}}
{{- $rollout := deepCopy ($pool.rollout | default dict) -}}
{{- if not $rollout -}}
{{- /* A second pod of a slice's pool would wait for a slice. */}}
{{- $surge := ternary 0 1 (not (empty $slice)) -}}
{{- $rollout = dict "maxSurge" $surge "maxUnavailable" (sub 1 $surge) -}}
{{- else if gt (int $slice.hosts) 1 -}}
{{- if not (hasKey $rollout "maxSurge") }}{{ $_ := set $rollout "maxSurge" 0 }}{{ end -}}
{{- if not (hasKey $rollout "maxUnavailable") }}{{ $_ := set $rollout "maxUnavailable" 1 }}{{ end -}}
{{- end -}}
{{- if and (has (toString $rollout.maxSurge) (list "0" "0%")) (has (toString $rollout.maxUnavailable) (list "0" "0%")) -}}
{{- fail (printf "%s.rollout: with maxSurge 0 and maxUnavailable 0 no pod can be replaced" $where) -}}
{{- end -}}
{{- with $pool.autoscale -}}
{{- if eq $root.Values.autoscaling.kind "none" -}}
{{- fail (printf "%s.autoscale: needs autoscaling.kind keda or hpa" $where) -}}
{{- end -}}
{{- if lt (int .max) (max 1 (int .min)) -}}
{{- fail (printf "%s.autoscale: max %d is less than min %d" $where (int .max) (int .min)) -}}
{{- end -}}
{{- if and (eq (int .min) 0) (eq $root.Values.autoscaling.kind "hpa") -}}
{{- fail (printf "%s.autoscale.min: only autoscaling.kind keda scales to 0" $where) -}}
{{- end -}}
{{- end -}}
{{- $meant := dict
  "role" $role
  "name" $pool.name
  "fullname" (printf "%s-%s-%s" (include "tandem.fullname" $root) $role $pool.name)
  "flags" $flags
  "hosts" (int ($slice.hosts | default 1))
  "rollout" $rollout
  "startupSeconds" (int ($pool.startupSeconds | default $root.Values.workers.startupSeconds))
  "cacheSize" ($pool.cacheSize | default $root.Values.workers.cacheSize)
  "resources" ($pool.resources | default $root.Values.workers.resources) -}}
{{- if $slice }}{{ $_ := set $meant "slice" $slice }}{{ end -}}
{{- omit $pool "flags" "slice" "rollout" "startupSeconds" "cacheSize" "resources" | mergeOverwrite $meant | toYaml -}}
{{- end }}

{{/* All pools. */}}
{{- define "tandem.pools" -}}
{{- $root := . -}}
{{- $names := dict -}}
{{- $pools := list -}}
{{- range $role := list "prefill" "decode" -}}
{{- $scaled := list -}}
{{- range $index, $pool := get $root.Values.pools $role -}}
{{- $key := printf "%s/%s" $role $pool.name -}}
{{- if hasKey $names $key -}}
{{- fail (printf "pools.%s[%d].name: %q is the name of another pool of this role" $role $index $pool.name) -}}
{{- end -}}
{{- $_ := set $names $key true -}}
{{- if $pool.autoscale }}{{ $scaled = append $scaled $pool.name }}{{ end -}}
{{- $pools = append $pools (include "tandem.pool" (list $root $role $index $pool) | fromYaml) -}}
{{- end -}}
{{- if gt (len $scaled) 1 -}}
{{- fail (printf "pools.%s: autoscale on %s: what waits is measured for the whole role, so that one pool of it at most can follow" $role (join ", " $scaled)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $pools -}}
{{- end }}

{{/* The programs' own keys as arguments, from a dictionary. */}}
{{- define "tandem.flags" -}}
{{- range $key, $value := . }}
{{- if kindIs "bool" $value }}
{{- if $value }}
- {{ printf "--%s" $key | quote }}
{{- end }}
{{- else if kindIs "slice" $value }}
{{- $items := list }}
{{- range $value }}{{ $items = append $items (toString (int64 .)) }}{{ end }}
- {{ printf "--%s=%s" $key (join "," $items) | quote }}
{{- else if kindIs "string" $value }}
- {{ printf "--%s=%s" $key $value | quote }}
{{- else if not (kindIs "invalid" $value) }}
- {{ printf "--%s=%d" $key (int64 $value) | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether a role may be scaled to no worker at all. */}}
{{- define "tandem.onDemand" -}}
{{- $least := dict "prefill" 0 "decode" 0 -}}
{{- $scaled := dict -}}
{{- range include "tandem.pools" . | fromYamlArray -}}
{{- if .autoscale -}}
{{- $_ := set $scaled .role true -}}
{{- end -}}
{{- $_ := set $least .role (add (get $least .role) (int (ternary (.autoscale | default dict).min .replicas (hasKey . "autoscale")))) -}}
{{- end -}}
{{- range $role, $_ := $scaled -}}
{{- if eq (int (get $least $role)) 0 -}}true{{- end -}}
{{- end -}}
{{- end }}
