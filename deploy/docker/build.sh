#!/usr/bin/env bash
# Images of Regnum, out of what git has: HEAD, or HEAD and what differs from it in files that git knows.
#   build.sh images [NAME ...]     with buildah, podman or docker (or what BUILDER names): regnum:VERSION, regnum-failovers:VERSION;
#                                  BASE: the base image, for a release with its digest (NAME:TAG@sha256:...);
#                                  BUILD_FLAGS: more for the builder
#   build.sh context DIR [NAME]    only a folder for a builder that takes no arguments: DIR/Dockerfile, the rest beside it
# NAME: services (regnum), failovers (regnum-failovers: the job that reads traces, with Spark and Java).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

usage() { sed -n '2,7s/^# \?//p' deploy/docker/build.sh >&2; exit 2; }

# All mtimes, and what the image says of its own making: layers that hold the same are the same, whenever they were made.
readonly EPOCH=315532800
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml | head -n 1)

dockerfile() {  # NAME
  case $1 in
    services) echo deploy/docker/Dockerfile ;;
    failovers) echo deploy/docker/failovers.Dockerfile ;;
    *) echo "there is no image $1: services, failovers" >&2; exit 2 ;;
  esac
}

tag() { if [ "$1" = services ]; then echo "regnum:$version"; else echo "regnum-$1:$version"; fi; }

fill() {  # DIR: the context; sets commit and made
  local paths=(.dockerignore pyproject.toml hatch_build.py README.md LICENSE deploy/docker proto/gen libs services analysis/failover)
  commit="" made=""
  if ! git rev-parse --verify --quiet HEAD > /dev/null 2>&1; then
    echo "no checkout: the folder as it is, and no commit in the image" >&2
    tar -cf - "${paths[@]}" | tar -C "$1" -xf -
    return
  fi
  commit=$(git rev-parse --short=12 HEAD) made=$(TZ=UTC0 git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd)
  local tree; tree=$(git -c user.name=- -c user.email=- stash create)
  [ -z "$tree" ] || commit=$commit-dirty
  if [ -n "$(git ls-files --others --exclude-standard -- "${paths[@]}")" ]; then
    echo "left out, because git does not know them: $(git ls-files --others --exclude-standard -- "${paths[@]}" | tr '\n' ' ')" >&2
  fi
  git archive "${tree:-HEAD}" -- "${paths[@]}" | tar -C "$1" -xf -
}

found() {  # what builds images here
  if [ -n "${BUILDER:-}" ]; then echo "$BUILDER"; return; fi
  for one in buildah podman; do
    if command -v "$one" > /dev/null; then echo "$one"; return; fi
  done
  if command -v docker > /dev/null && docker version > /dev/null 2>&1; then echo docker; return; fi
  { echo "nothing here builds images: install buildah or podman (Debian: apt-get install buildah), or start docker's daemon;"
    echo "for a builder elsewhere: deploy/docker/build.sh context DIR"; } >&2
  return 1
}

base() {  # what an image is built on: BASE, or what its Dockerfile says
  echo "${BASE:-$(sed -n 's/^ARG BASE=//p' "$(dockerfile "$1")")}"
}

say_digest() {  # NAME; a name may mean another image tomorrow, and what was handed out could not be built again
  case $(base "$1") in *@sha256:*) return ;; esac
  { echo "$(tag "$1"): the base image $(base "$1") is named without a digest"
    echo "  for a release: BASE=$(base "$1")@sha256:... make images    (docs/releasing.md says where the digest is found)"; } >&2
}

build() {  # BUILDER NAME DIR
  say_digest "$2"
  local flags=(--file "$3/$(dockerfile "$2")" --tag "$(tag "$2")"
    --build-arg "VERSION=$version" --build-arg "COMMIT=$commit" --build-arg "MADE=$made"
    --build-arg "BASE=$(base "$2")")
  case $(basename "$1") in
    # The environment, for what of BuildKit reads it; whether file times follow is up to the exporter.
    docker) flags+=(--build-arg "SOURCE_DATE_EPOCH=$EPOCH") ;;
    # Layers: what only a change of the lock changes is fetched once.
    *) flags+=(--layers --timestamp "$EPOCH") ;;
  esac
  # shellcheck disable=SC2086  # BUILD_FLAGS is a list
  "$1" build "${flags[@]}" ${BUILD_FLAGS:-} "$3" >&2
  tag "$2"
}

case ${1:-} in
  images)
    shift
    [ $# -gt 0 ] || set -- services failovers
    for name in "$@"; do dockerfile "$name" > /dev/null; done
    builder=$(found)
    context=$(mktemp -d); trap 'rm -rf "$context"' EXIT
    fill "$context"
    for name in "$@"; do build "$builder" "$name" "$context"; done
    ;;
  context)
    [ $# -ge 2 ] || usage
    file=$(dockerfile "${3:-services}")
    mkdir -p "$2"
    if [ -n "$(ls -A "$2")" ]; then echo "$2 is not empty" >&2; exit 1; fi
    fill "$2"
    sed -e "s/^ARG VERSION=.*/ARG VERSION=\"$version\"/" -e "s/^ARG COMMIT=.*/ARG COMMIT=\"$commit\"/" -e "s/^ARG MADE=.*/ARG MADE=\"$made\"/" "$2/$file" > "$2/Dockerfile"
    tag "${3:-services}"
    ;;
  *) usage ;;
esac
