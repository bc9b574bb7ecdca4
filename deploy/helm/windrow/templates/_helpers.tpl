{{- define "windrow.name" -}}
{{- default .Release.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "windrow.labels" -}}
app.kubernetes.io/name: windrow
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Labels by which the pods of one part are selected: (list . "master"). */}}
{{- define "windrow.selector" -}}
app.kubernetes.io/name: windrow
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* An image: (list . .Values.images.master). */}}
{{- define "windrow.image" -}}
{{- $image := index . 1 -}}
{{ $image.repository }}:{{ default (index . 0).Chart.AppVersion $image.tag }}
{{- end -}}

{{/* The name of a Secret: (list . "agent"). */}}
{{- define "windrow.secret" -}}
{{- $top := index . 0 -}}{{- $role := index . 1 -}}
{{- if $top.Values.secrets.create -}}
{{ include "windrow.name" $top }}-{{ $role }}
{{- else -}}
{{ required (printf "secrets.create is false: name the Secret in secrets.existing.%s" $role) (index $top.Values.secrets.existing $role) }}
{{- end -}}
{{- end -}}

{{- define "windrow.masterHost" -}}
{{ include "windrow.name" . }}-master.{{ .Release.Namespace }}.svc
{{- end -}}

{{- define "windrow.agentNamespace" -}}
{{ default .Release.Namespace .Values.fleet.namespace }}
{{- end -}}

{{/* All names of the master in its certificate. */}}
{{- define "windrow.masterNames" -}}
{{- $service := printf "%s-master" (include "windrow.name" .) -}}
{{- $names := list (include "windrow.masterHost" .) $service (printf "%s.%s" $service .Release.Namespace) (printf "%s.%s.svc.cluster.local" $service .Release.Namespace) "localhost" -}}
{{- concat $names .Values.secrets.names | toJson -}}
{{- end -}}

{{- define "windrow.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.user }}
runAsGroup: {{ .Values.user }}
fsGroup: {{ .Values.user }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "windrow.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "windrow.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "windrow.check" -}}
{{- if and .Values.certManager.enabled .Values.secrets.create -}}
{{- fail "certManager.enabled needs secrets.create: false, and Secrets with the tokens and the issuer's certificate in secrets.existing" -}}
{{- end -}}
{{- if and .Values.certManager.enabled (not .Values.certManager.issuerRef.name) -}}
{{- fail "certManager.enabled needs certManager.issuerRef.name" -}}
{{- end -}}
{{- end -}}

{{- define "windrow.hook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
