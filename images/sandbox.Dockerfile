# The sandbox as a container: Debian, the pinned Wine, a sealed prefix, and the WinRM service as
# process 1.
# Built by `invoke image build`, which puts into the context what the lock names: nothing is fetched
# here but Debian's packages. For the classic builder, the only one that the Docker SDK drives: no
# mounts in RUN, no heredocs, no COPY --link.

# By digest, or an image's id; it has no default on purpose: a tag is another image next month.
ARG BASE

# hadolint ignore=DL3006
FROM ${BASE} AS system
# By this label the layers of a build that was cut off are found.
LABEL windows-cuda-wheels.image="sandbox"
# Debian's mirror decides the versions, and the record says which they were. tini is process 1, as
# Wine's processes are re-parented to it and would stay as zombies.
# hadolint ignore=DL3008
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        python3 tini \
 && apt-get clean && rm -rf /var/lib/apt/lists/*

# -- what is made and then copied, so that no downloads stay in the image ---------------------------
FROM system AS parts
# hadolint ignore=DL3008
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        python3-venv \
 && apt-get clean && rm -rf /var/lib/apt/lists/*
COPY requirements.txt /made/
COPY wheels /made/wheels
# Byte code goes by the hash of its source: it is the same in every build.
RUN python3 -m venv /opt/venv \
 && /opt/venv/bin/pip install -q --no-index --find-links /made/wheels --no-deps --no-compile \
        --require-hashes --requirement /made/requirements.txt \
 && /opt/venv/bin/pip check \
 && /opt/venv/bin/pip uninstall -q -y pip setuptools \
 && echo /opt/pipeline >"$(/opt/venv/bin/python -c 'import site; print(site.getsitepackages()[0])')/pipeline.pth" \
 && find /opt/venv -name __pycache__ -prune -exec rm -r {} + \
 && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/venv/lib
COPY pipelines /opt/pipeline/pipelines
RUN python3 -m compileall -q --invalidation-mode unchecked-hash /opt/pipeline
COPY downloads /made/windows-cuda-wheels/downloads
COPY scripts/make_prefix.py /made/
ARG PYTHON
ENV XDG_CACHE_HOME=/made
RUN /opt/venv/bin/python /made/make_prefix.py "${PYTHON}" /sandbox/prefix

# -- the image --------------------------------------------------------------------------------------
FROM system
COPY --from=parts /opt /opt
COPY --from=parts /sandbox /sandbox
# Where it was unpacked: its programs name that place.
ENV XDG_CACHE_HOME=/made
COPY --from=parts /made/windows-cuda-wheels/wine /made/windows-cuda-wheels/wine
COPY scripts/survey.py /image/
ARG CP
RUN python3 /image/survey.py --out /image/found.json \
        venv=/opt/venv service=/opt/pipeline \
        python="/sandbox/prefix/drive_c/Python${CP}" \
        compiler=/sandbox/prefix/drive_c/zig tools=/sandbox/prefix/drive_c/VS
EXPOSE 5986
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/tini", "-s", "--", "/opt/venv/bin/python", "-m", "pipelines.hosts.sandbox.daemon", "/sandbox", "--listen", "0.0.0.0", "--https-port", "5986"]
