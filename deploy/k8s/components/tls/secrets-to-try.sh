#!/usr/bin/env bash
# To try TLS without cert-manager: the Secrets of the components tls and etcd-tls on standard output, with certificates of
# `regnum certs init` for a year. The keys of both authorities lie in DIR afterwards; a real cluster has an authority of its own.
#   secrets-to-try.sh DIR [NAMESPACE] | kubectl apply -f -
set -euo pipefail
dir=${1:?a folder for certificates and keys} namespace=${2:-regnum}
hosts=()
for service in broker election metadata quota; do hosts+=(--host "*.regnum-$service.$namespace.svc"); done
for member in 0 1 2; do hosts+=(--host "regnum-etcd-$member.regnum-etcd"); done
hosts+=(--host regnum-bootstrap --host "regnum-bootstrap.$namespace" --host "regnum-bootstrap.$namespace.svc")
# One certificate for all processes of a service; the second of quota processes is the store's.
regnum certs init --dir "$dir" --brokers 1 --elections 1 --metadata 1 --quotas 2 --client admin "${hosts[@]}" > /dev/null
secret() {  # NAME CERTIFICATE CA
  kubectl create secret generic "$1" --namespace "$namespace" --dry-run=client -o yaml \
    --from-file=tls.crt="$dir/$2.pem" --from-file=tls.key="$dir/$2.key" --from-file=ca.crt="$dir/$3.pem"
  echo ---
}
for service in broker election metadata quota; do secret "regnum-$service-tls" "$service-1" cluster-ca; done
secret regnum-etcd-tls quota-2 cluster-ca
secret regnum-admin-tls client-admin cluster-ca
# Members of etcd believe one another by an authority that signs nothing else.
regnum certs init --dir "$dir/etcd-peers" --brokers 1 --elections 0 --metadata 0 --quotas 0 "${hosts[@]}" > /dev/null
secret regnum-etcd-peer-tls etcd-peers/broker-1 etcd-peers/cluster-ca
kubectl create secret generic regnum-client-ca --namespace "$namespace" --dry-run=client -o yaml --from-file=ca.crt="$dir/client-ca.pem"
