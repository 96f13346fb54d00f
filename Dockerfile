# One image for the three roles of a deployment. The credentials bundle and the data are mounted, never built in:
#   docker build -t airprune .
#   docker run -v ./fleet/cloud:/kit -v ./runs:/runs -p 8700:8700 airprune cloud /kit deployed --out /runs/first
#   docker run -v ./fleet/e0:/kit -p 8701:8701 airprune edge /kit
#   docker run -v ./fleet/d0:/kit -v ./samples.npz:/samples.npz:ro airprune device /kit --data /samples.npz
FROM python:3.11-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml setup.py MANIFEST.in README.md constraints.txt ./
COPY src src
RUN python -m venv /opt/airprune && /opt/airprune/bin/pip install --no-cache-dir -c constraints.txt '.[deploy]'

FROM python:3.11-slim
RUN useradd --create-home airprune && mkdir /kit /runs && chown airprune /kit /runs
COPY --from=build /opt/airprune /opt/airprune
USER airprune
ENTRYPOINT ["/opt/airprune/bin/airprune", "deploy"]
CMD ["--help"]
