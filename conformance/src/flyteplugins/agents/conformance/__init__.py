"""What an adapter must show, and what it is shown with.

- `models`: an offline model server that speaks the SDKs' own protocols over HTTP.
- `plane`: a Flyte control plane on one machine, whose workers can be killed.
- `faults`: kill a process at a named point, once.
- `local`: `flyte run --local` in processes of their own.
- `approvals`: a person decides about what a tool does.
- `crash`: kill an agent at every boundary, and compare it with one that was left alone.
- `kit`: every paragraph of the promise as a check, which an adapter takes in with one class.
- `reference`: a whole adapter, for an SDK that nobody publishes.
"""
