#!/usr/bin/env bash
# To try overlays/production without cert-manager: its Secrets on standard output, with certificates for a year, named as
# those of the component cert-manager are, and a secret for delegation tokens. Needs openssl. Clients are `admin`, a super
# user, and `guest`, who has no right yet: regnum-admin-tls and regnum-guest-tls. The keys of all authorities lie in DIR
# afterwards; a real cluster has authorities of its own.
#   secrets-to-try.sh DIR [NAMESPACE] | kubectl apply -f -
set -euo pipefail
dir=${1:?a folder for certificates and keys} namespace=${2:-regnum}
umask 077
mkdir -p "$dir"; cd "$dir"
[ -z "$(ls -A)" ] || { echo "$dir is not empty: name another folder" >&2; exit 1; }

quietly() { "$@" 2> openssl.log || { cat openssl.log >&2; exit 1; }; }
key() { quietly openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key"; }

authority() {  # NAME COMMON-NAME
  key "$1"
  printf 'basicConstraints=critical,CA:true,pathlen:0\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n' > "$1.ext"
  quietly openssl req -new -key "$1.key" -subj "/CN=$2" -out "$1.csr"
  quietly openssl x509 -req -in "$1.csr" -signkey "$1.key" -days 3650 -sha256 -extfile "$1.ext" -out "$1.crt"
}

signed() {  # NAME COMMON-NAME AUTHORITY USAGES [HOST ...]
  local name=$1 common=$2 by=$3 usages=$4; shift 4
  key "$name"
  { printf 'basicConstraints=critical,CA:false\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=%s\n' "$usages"
    if [ $# -gt 0 ]; then printf 'subjectAltName=%s\n' "$(printf ',DNS:%s' "$@" | cut -c2-)"; fi; } > "$name.ext"
  quietly openssl req -new -key "$name.key" -subj "/CN=$common" -out "$name.csr"
  quietly openssl x509 -req -in "$name.csr" -CA "$by.crt" -CAkey "$by.key" -CAcreateserial -days 365 -sha256 -extfile "$name.ext" -out "$name.crt"
}

secret() {  # NAME TYPE KEY=FILE ...
  printf -- '---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: %s\n  namespace: %s\ntype: %s\ndata:\n' "$1" "$namespace" "$2"
  shift 2
  for one in "$@"; do printf '  %s: %s\n' "${one%%=*}" "$(base64 < "${one#*=}" | tr -d '\n')"; done
}
tls() { secret "$1" kubernetes.io/tls "tls.crt=$2.crt" "tls.key=$2.key" "ca.crt=$3.crt"; }

authority cluster-ca "Regnum cluster CA"
authority client-ca "Regnum client CA"
both=serverAuth,clientAuth
for service in broker election metadata quota; do
  hosts=()
  if [ $service = broker ]; then hosts=(regnum-bootstrap "regnum-bootstrap.$namespace" "regnum-bootstrap.$namespace.svc"); fi
  # Last: a client that holds a name of two parts against it first writes an error about that.
  hosts+=("*.regnum-$service.$namespace.svc")
  signed $service "regnum-$service" cluster-ca $both "${hosts[@]}"
  tls "regnum-$service-tls" $service cluster-ca
done
# One by one: gRPC takes no wildcard for a name of two parts.
signed etcd regnum-etcd cluster-ca $both regnum-etcd-{0,1,2}.regnum-etcd
tls regnum-etcd-tls etcd cluster-ca
# Members of etcd believe one another by an authority that signs nothing else.
authority etcd-peer-ca "Regnum etcd peer CA"
signed etcd-peer regnum-etcd-peer etcd-peer-ca $both regnum-etcd-{0,1,2}.regnum-etcd
tls regnum-etcd-peer-tls etcd-peer etcd-peer-ca
# Clients check brokers with the authority of processes.
for client in admin guest; do
  signed $client $client client-ca clientAuth
  tls "regnum-$client-tls" $client cluster-ca
done
# What the component console shows: to browsers, and to brokers.
signed console regnum-console cluster-ca serverAuth localhost regnum-console "regnum-console.$namespace" "regnum-console.$namespace.svc"
tls regnum-console-tls console cluster-ca
signed console-client console client-ca clientAuth
tls regnum-console-client-tls console-client cluster-ca
secret regnum-client-ca Opaque ca.crt=client-ca.crt
openssl rand -base64 64 > token-secret
secret regnum-tokens Opaque secret=token-secret
