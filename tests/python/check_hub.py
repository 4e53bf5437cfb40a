"""Check `wave pull`, `hf:` names and `wave publish` against servers and clients that others wrote.

    cargo build --release
    pip install olah huggingface_hub
    python tests/python/check_hub.py --wave target/release/wave

Pulling: olah, a mirror of Hugging Face's hub, serves plain git repositories on the loopback
interface, offline. wave pulls a template and a model directory from it, by branch and by commit, and
uses `hf:` names in other commands; Python's `huggingface_hub` has to find the same bytes, in its own
download and in the cache that wave filled. Then olah is stopped: `HF_HUB_OFFLINE` has to be enough.

A data set repository of tar shards comes from olah too, as `--data hf:OWNER/NAME`.

Publishing: no server in a package registry takes uploads, so a stub of the hub's interface in this
file stands in for one. Without Xet, `wave publish` has to refuse it before it sends anything. With Xet, the
stub points to `local_cas_server`, the storage that Xet's own authors test with: `wave publish` and
`huggingface_hub`'s `upload_folder` send the same directory, and both have to leave the same commit and the
same objects in the storage; `wave pull` has to get the same bytes out of it. That part is left out where the program is not on the path:

    cargo install xet-client --features simulation --bin local_cas_server

Not covered: the real hub itself.

Exit code: 0 all as it should be, 1 otherwise. Written for Python 3.10 or later, olah 0.5 and
huggingface_hub 2.x; needs git.
"""

import argparse
import base64
import contextlib
import hashlib
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "hf_of_nobody"


class Failure(Exception):
    """Something is not as it should be."""


def check(holds, what):
    print(f"{'ok' if holds else 'FAILED'}: {what}", flush=True)
    if not holds:
        raise Failure(what)


def run(command, environment, code=0, cwd=None):
    command = [str(word) for word in command]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, cwd=cwd
    )
    if done.returncode != code:
        said = f"{' '.join(command)}: exit code {done.returncode}, not {code}"
        raise Failure(f"{said}\n{done.stdout}{done.stderr}")
    return done


def files(folder):
    """The bytes of the files directly in a directory."""
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file() and p.name[0] != "."}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def commit(repository, content, environment):
    """Makes the files of `content` the next commit of a git repository; returns its hash."""
    git = ["git", "-C", repository]
    if not repository.exists():
        repository.mkdir(parents=True)
        run([*git, "init", "-q", "-b", "main"], environment)
    for old in files(repository):
        (repository / old).unlink()
    for name, data in content.items():
        (repository / name).write_bytes(data)
    run([*git, "add", "-A"], environment)
    who = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
    run([*git, *who, "commit", "-q", "-m", "A commit"], environment)
    return run([*git, "rev-parse", "HEAD"], environment).stdout.strip()


@contextlib.contextmanager
def olah(folder, environment):
    """A mirror that serves folder/models/OWNER/NAME; gives its address."""
    port = free_port()
    here = f"127.0.0.1:{port}"
    settings = f"""
[basic]
host = "127.0.0.1"
port = {port}
hf-scheme = "http"
hf-netloc = "{here}"
hf-lfs-netloc = "{here}"
mirror-scheme = "http"
mirror-netloc = "{here}"
mirror-lfs-netloc = "{here}"
repos-path = "{folder}/cache"
mirrors-path = ["{folder}"]
metadata-cache-ttl = 0

[accessibility]
offline = true
"""
    path = folder / "olah.toml"
    path.write_text(settings)
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    program = shutil.which("olah-cli", path=places)
    if program is None:
        raise Failure("no olah-cli beside Python or on the path; pip install olah")
    command = [program, "-c", str(path)]
    command += ["--log-path", str(folder / "logs")]
    with open(folder / "olah.log", "wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
    try:
        for _ in range(300):
            if server.poll() is not None:
                raise Failure((folder / "olah.log").read_text())
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield f"http://{here}"
    finally:
        server.terminate()
        server.wait()


class Stub(http.server.BaseHTTPRequestHandler):
    """As much of the hub as publishing needs. What it holds, and the address of Xet's storage if there is
    one, lie on the class."""

    repositories = {}
    asked = []
    storage = None
    # Size and Xet's hash of each large file.
    large = {}
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, value, status=200):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def repository(self):
        """The repository in the path, and what comes after it."""
        words = self.path.split("?")[0].removeprefix("/api/models/").strip("/").split("/")
        return self.repositories.get("/".join(words[:2])), words[2:]

    def do_HEAD(self):
        self.do_GET()

    def file(self, name):
        """One file of o/wave; large ones are with Xet's storage only."""
        mode, content = self.repositories["o/wave"][name]
        self.send_response(200 if mode == "regular" else 302)
        self.send_header("x-repo-commit", "0" * 40)
        if mode == "lfs":
            size, xet = self.large[name]
            self.send_header("location", "http://127.0.0.1:1/nowhere")
            self.send_header("x-linked-etag", f'"{content}"')
            self.send_header("x-linked-size", str(size))
            self.send_header("x-xet-hash", xet)
            content = b""
        else:
            git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            self.send_header("etag", f'"{git}"')
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def do_GET(self):
        found, rest = self.repository()
        where = f"/o/wave/resolve/{'0' * 40}/"
        if self.path.startswith(where):
            return self.file(self.path.removeprefix(where))
        if found is None:
            self.answer({"error": "not found"}, 404)
        elif rest[:1] == ["revision"] or not rest:
            siblings = [{"rfilename": name} for name in sorted(found)]
            self.answer({"id": "o/n", "sha": "0" * 40, "siblings": siblings})
        elif rest[0] in ("xet-write-token", "xet-read-token") and self.storage:
            token = {"casUrl": self.storage, "accessToken": "of_xet", "exp": 4_000_000_000}
            self.answer(token)
        else:
            self.answer({"error": "not found"}, 404)

    def do_POST(self):
        data = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.asked.append(self.path)
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            return self.answer({"error": "who are you?"}, 401)
        if self.path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        if self.path == "/api/repos/create":
            request = json.loads(data)
            name = f"{request['organization']}/{request['name']}"
            self.repositories.setdefault(name, {})
            return self.answer({"url": f"{self.here()}/{name}", "name": name, "id": name})
        if self.path.endswith(".git/info/lfs/objects/batch"):
            request = json.loads(data)
            assert request["operation"] == "upload" and request["hash_algo"] == "sha256"
            transfer = "xet" if self.storage and "xet" in request["transfers"] else "basic"
            return self.answer({"transfer": transfer, "objects": request["objects"]})
        found, rest = self.repository()
        if found is None:
            return self.answer({"error": "not found"}, 404)
        if rest[0] == "preupload":
            modes = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                    "shouldIgnore": False,
                    "oid": None,
                }
                for file in json.loads(data)["files"]
            ]
            return self.answer({"files": modes})
        if rest[0] == "commit":
            return self.commit(found, [json.loads(line) for line in data.splitlines()])
        return self.answer({"error": "unknown"}, 404)

    def here(self):
        return f"http://{self.headers['host']}"

    def commit(self, repository, lines):
        assert lines[0]["key"] == "header" and lines[0]["value"]["summary"]
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                assert value["encoding"] == "base64"
                repository[value["path"]] = ("regular", base64.b64decode(value["content"]))
            else:
                assert line["key"] == "lfsFile" and value["algo"] == "sha256"
                repository[value["path"]] = ("lfs", value["oid"])
        self.answer({
            "success": True,
            "commitOid": "0" * 40,
            "commitUrl": f"{self.here()}/o/n/commit/{'0' * 40}",
            "hookOutput": "",
        })


@contextlib.contextmanager
def stub():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    server.handle_error = lambda *_: None  # clients that hang up
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


@contextlib.contextmanager
def xet_storage(program, folder, environment):
    """Xet's own storage for tests, in a folder; gives its address."""
    port = free_port()
    command = [program, "--data-directory", str(folder), "--port", str(port)]
    with open(f"{folder}.log", "wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        for _ in range(300):
            if server.poll() is not None:
                raise Failure(Path(f"{folder}.log").read_text())
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def python_client(code, environment):
    """Runs Python's hub client in a process of its own, since it reads its settings on import."""
    return run([sys.executable, "-c", code], environment).stdout.strip()


def check_pull(wave, folder, environment, templates, model):
    """Both directories as git repositories, behind olah."""
    repositories = folder / "mirror" / "models" / "wave"
    first = commit(repositories / "templates", files(templates), environment)
    commit(repositories / "model", files(model), environment)
    changed = {**files(templates), "README.md": b"# Another\n"}
    changed["notes.txt"] = b"no part of an artefact\n"
    changed["evil.bin"] = b"a pickle"
    second = commit(repositories / "templates", changed, environment)

    with olah(folder / "mirror", environment) as address:
        online = {**environment, "HF_ENDPOINT": address, "HF_HOME": str(folder / "home")}
        done = run([wave, "pull", "wave/templates", "--out", folder / "t", "--json"], online)
        expected = {n: b for n, b in changed.items() if n not in ("notes.txt", "evil.bin")}
        check(files(folder / "t") == expected, "wave pull from olah: the artefact, and nothing else")
        print(f"   {done.stdout.strip()}")
        run([wave, "pull", f"wave/templates@{first}", "--out", folder / "old"], online)
        check(files(folder / "old") == files(templates), "a commit gives the files of that commit")
        name = f"hf:wave/templates@{second}"
        size = ["--depth", 2, "--width", 64, "--steps", 0]
        run([wave, "expand", name, *size, "--out", folder / "from-hub"], online)
        run([wave, "expand", templates, *size, "--out", folder / "from-disk"], online)
        weights = [files(folder / d)["model.safetensors"] for d in ("from-hub", "from-disk")]
        check(weights[0] == weights[1], "wave expand hf:... as from the directory itself")
        inspected = run([wave, "inspect", "hf:wave/model", "--json"], online).stdout
        check('"parameters"' in inspected, "wave inspect hf:...")
        done = run([wave, "pull", "wave/absent", "--out", folder / "absent"], online, code=2)
        check(not (folder / "absent").exists(), "an absent repository: exit code 2, nothing written")
        print(f"   {done.stderr.strip()}")

        other = {**online, "HF_HOME": str(folder / "python")}
        code = "import huggingface_hub as h; print(h.snapshot_download('wave/templates'))"
        theirs = files(Path(python_client(code, other)))
        same = all(theirs[name] == content for name, content in expected.items())
        check(same, "huggingface_hub downloads the same bytes from olah")

    offline = {**online, "HF_HUB_OFFLINE": "1"}
    run([wave, "pull", "wave/templates", "--out", folder / "again"], offline)
    check(files(folder / "again") == expected, "HF_HUB_OFFLINE, olah stopped: from the cache")
    code = (
        "import huggingface_hub as h; print(h.hf_hub_download('wave/templates',"
        " 'templates.safetensors'), h.hf_hub_download('wave/model', 'config.json'))"
    )
    found = [Path(path).read_bytes() for path in python_client(code, offline).split()]
    wanted = [files(templates)["templates.safetensors"], files(model)["config.json"]]
    check(found == wanted, "huggingface_hub, offline, finds what wave put into the cache")


def check_data(wave, folder, environment):
    """Tar shards as a git repository of data, behind olah."""
    run([wave, "data", "pack", "shapes", folder / "shards"], environment)
    commit(folder / "data" / "datasets" / "wave" / "shapes", files(folder / "shards"), environment)
    with olah(folder / "data", environment) as address:
        online = {**environment, "HF_ENDPOINT": address, "HF_HOME": str(folder / "data-home")}
        name = "hf:wave/shapes"
        here = run([wave, "data", "check", folder / "shards", "--json"], online).stdout
        there = run([wave, "data", "check", name, "--json"], online).stdout
        check(here == there, "--data hf:... from olah: the same images as from the shards")
    offline = {**online, "HF_HUB_OFFLINE": "1"}
    again = run([wave, "data", "check", name, "--json"], offline).stdout
    check(here == again, "HF_HUB_OFFLINE, olah stopped: the data from the cache")


def check_refusal(wave, folder, environment, directory):
    """A hub without Xet."""
    with stub() as address:
        online = {
            **environment,
            "HF_ENDPOINT": address,
            "HF_TOKEN": TOKEN,
            "HF_HOME": str(folder / "publish"),
        }
        done = run([wave, "publish", directory, "--repo", "o/wave"], online, code=2)
        sent = [path for path in Stub.asked if "commit" in path or "preupload" in path]
        check("Xet" in done.stderr and not sent, "a hub without Xet: exit code 2, nothing sent")
        print(f"   {done.stderr.strip()}")
        wrong = {**online, "HF_TOKEN": "hf_wrong"}
        done = run([wave, "publish", directory, "--repo", "o/wave"], wrong, code=2)
        check("hf_wrong" not in done.stderr, "a wrong token: exit code 2, not told")
        print(f"   {done.stderr.strip()}")


def check_publish(wave, folder, environment, directory, program):
    """A hub with Xet's own storage."""
    with xet_storage(program, folder / "xet", environment) as storage, stub() as address:
        Stub.storage = storage
        online = {**environment, "HF_ENDPOINT": address, "HF_TOKEN": TOKEN}
        homes = [{**online, "HF_HOME": str(folder / name)} for name in ("ours", "theirs")]
        done = run([wave, "publish", directory, "--repo", "o/wave", "--json"], homes[0])
        said = json.loads(done.stdout)
        check(TOKEN not in done.stdout + done.stderr, "the token is not told")
        xorbs = sorted(path.name for path in (folder / "xet").rglob("*") if path.suffix == "")
        code = (
            "import huggingface_hub as h; a = h.HfApi(); a.create_repo('o/python');"
            f" a.upload_folder(repo_id='o/python', folder_path={str(directory)!r},"
            f" allow_patterns={[file['path'] for file in said['files']]!r})"
        )
        python_client(code, homes[1])
        ours, theirs = Stub.repositories["o/wave"], Stub.repositories["o/python"]
        for name, (mode, _) in ours.items():
            if mode == "lfs":
                code = f"import hf_xet as x; print(x.hash_files([{str(directory / name)!r}])[0].hash)"
                size = (directory / name).stat().st_size
                Stub.large[name] = (size, python_client(code, homes[1]))
        fresh = {**online, "HF_HOME": str(folder / "fresh")}
        run([wave, "pull", "o/wave", "--out", folder / "round"], fresh)
        # wave's card loads the model by the repository's name.
        (mode, card), (other, _) = ours.pop("README.md"), theirs.pop("README.md")
        check(mode == other and b"hf-hub:o/wave" in card, "the card names the repository")
        pulled = {**files(directory), "README.md": card}
        check(files(folder / "round") == pulled, "published and pulled by Xet: the same bytes")
        check(ours == theirs, "wave publish leaves what huggingface_hub's upload_folder leaves")
        print(f"   { {name: mode for name, (mode, _) in ours.items()} }")
        again = sorted(path.name for path in (folder / "xet").rglob("*") if path.suffix == "")
        check(xorbs and xorbs == again, "and the same objects in Xet's storage")
        whole = {name: hashlib.sha256(data).hexdigest() for name, data in files(directory).items()}
        kept = {
            name: content if mode == "lfs" else hashlib.sha256(content).hexdigest()
            for name, (mode, content) in ours.items()
        }
        whole.pop("README.md")
        check(whole == kept, "and that is the directory")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wave", default="wave", help="the executable (default: wave on PATH)")
    args = parser.parse_args()
    wave = Path(shutil.which(args.wave) or args.wave).resolve()
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    environment = {**kept, "no_proxy": "*", "NO_PROXY": "*", "GIT_CONFIG_GLOBAL": os.devnull}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        try:
            templates = ROOT / "templates" / "fashion-mnist"
            size = ["--depth", 3, "--width", 64, "--steps", 0]
            run([wave, "expand", templates, *size, "--out", folder / "model"], environment)
            check_pull(wave, folder, environment, templates, folder / "model")
            check_data(wave, folder, environment)
            check_refusal(wave, folder, environment, folder / "model")
            program = shutil.which("local_cas_server")
            if program is None:
                print("no local_cas_server on the path: uploads by Xet are left out")
            else:
                check_publish(wave, folder, environment, folder / "model", program)
        except Failure as failure:
            print(f"error: {failure}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
