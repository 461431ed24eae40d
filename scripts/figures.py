"""Measures the README's figures on this machine: python3 scripts/figures.py [--raw PROGRAM] [--only NAME,…]

PROGRAM is a bare decode loop with the flags of `llmchat bench` that prints `name<TAB>median…` a line; with it
the ratios to the bare loop are measured too, in turn with ours. Ratios hold; absolute times move with the machine.
"""
import argparse
import glob
import json
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
import fcntl
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = str(ROOT / "target/release/llmchat")
MODELS = subprocess.run([ROOT / "scripts/fetch-model", "--where"], capture_output=True, text=True, check=True).stdout.strip()
MODEL = f"{MODELS}/SmolLM2-135M-Instruct-Q4_1.gguf"
STORY = "Write a very long story about a fox and a river."


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Chat:
    """The chat in a pseudo-terminal of 130 × 40."""

    def __init__(self, *arguments, trace=None, before=None):
        self.home = tempfile.TemporaryDirectory()
        os.makedirs(f"{self.home.name}/data")
        os.symlink(MODELS, f"{self.home.name}/data/models")
        pathlib.Path(f"{self.home.name}/config.toml").touch()
        if before:
            before(self.home.name)
        env = dict(os.environ, TERM="xterm-256color", LLMCHAT_DATA_DIR=f"{self.home.name}/data",
                   LLMCHAT_STATE_DIR=f"{self.home.name}/state",
                   LLMCHAT_CACHE_DIR=f"{self.home.name}/cache", LLMCHAT_CONFIG=f"{self.home.name}/config.toml")
        if trace:
            env["LLMCHAT_TRACE"] = trace
        self.began = time.time()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(PROGRAM, [PROGRAM, *arguments], env)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 130, 0, 0))
        self.seen = bytearray()  # grows in place: copying it would take a share of the cores

    def write(self, text):
        os.write(self.fd, text.encode())

    def read(self, wait=0.05):
        if select.select([self.fd], [], [], wait)[0]:
            try:
                self.seen += os.read(self.fd, 1 << 16)
            except OSError:
                return False
        return True

    def wait(self, text, since=0, limit=120):
        """Reads until the text is written; gives the time that took."""
        began = time.perf_counter()
        while text.encode() not in self.seen[since:]:
            if time.perf_counter() - began > limit or not self.read():
                sys.exit(f"figures: '{text}' did not come; the end was {self.seen[-400:]!r}")
        return time.perf_counter() - began

    def rest(self, seconds):
        until = time.time() + seconds
        while time.time() < until:
            self.read()

    def engine(self):
        for task in glob.glob(f"/proc/{self.pid}/task/*/children"):
            text = open(task).read().split()
            if text:
                return int(text[0])
        sys.exit("figures: there is no engine")

    def made(self):
        """What each answer was made with."""
        entries = []
        for name in sorted(glob.glob(f"{self.home.name}/data/conversations/*.jsonl")):
            try:
                entries += [json.loads(line) for line in open(name)]
            except FileNotFoundError:  # it has just got its title into its name
                pass
        return [e["made"] for e in entries if e["type"] == "done"]

    def answered(self, n=1):
        """Reads until so many answers have ended; looks rarely, because looking takes a share of the cores too."""
        while len(self.made()) < n:
            self.rest(0.25)

    def close(self):
        self.write("\x11")
        while self.read(0.2):
            pass
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def bench(*flags):
    done = subprocess.run([PROGRAM, "bench", "-m", MODEL, "--json", *flags], capture_output=True, text=True, check=True)
    return {r["test"]: r["tokens_per_second"]["median"] for r in json.loads(done.stdout)}


def raw(program, *flags):
    done = subprocess.run([program, MODEL, *flags], capture_output=True, text=True, check=True)
    return {line.split("\t")[0]: float(line.split("\t")[1]) for line in done.stdout.splitlines() if "\t" in line}


def figure_bench(options):
    """prefill and decode ÷ the bare loop"""
    if not options.raw:
        return "needs --raw"
    ratios = {"pp512": [], "tg128": []}
    flags = ["-p", "512", "-n", "128", "-d", "0", "-r", "5", "-t", "2"]
    for _ in range(5):
        ours, theirs = bench(*flags), raw(options.raw, *flags)
        for test in ratios:
            ratios[test].append(ours[test] / theirs[test])
    return ", ".join(f"{t} {statistics.median(r):.3f} ({min(r):.2f}–{max(r):.2f})" for t, r in ratios.items())


def figure_screen(options):
    """decode in the full screen with the panel ÷ bench"""
    ratios = []
    for _ in range(5):
        chat = Chat("--mode", "greedy", "-n", "257", "-t", "2", "-c", "1024")
        chat.rest(2.5)  # the model is loaded by then
        chat.write(STORY + "\r")
        chat.answered()
        made = chat.made()[0]
        depth = made["usage"]["prompt_tokens"]
        chat.close()
        n = made["usage"]["completion_tokens"] - 1
        ours = bench("-p", "0", "-n", str(n), "-d", str(depth), "-r", "1", "-t", "2")
        ratios.append(made["timings"]["tokens_per_second"] / list(ours.values())[0])
    return f"{statistics.median(ratios):.3f} ({min(ratios):.2f}–{max(ratios):.2f})"


def figure_start(options):
    """start to first frame"""
    times = []
    for _ in range(21):
        with tempfile.NamedTemporaryFile() as trace:
            chat = Chat(trace=trace.name)
            chat.wait("Conversations")
            stamp = int(open(trace.name).readline().split()[0]) / 1e6
            times.append((stamp - chat.began) * 1000)
            chat.close()
    return f"{statistics.median(times):.1f} ms median, {max(times):.1f} ms at most"


def key_times(chat, count):
    """Milliseconds from a key to the screen, for so many keys with pauses between."""
    times = []
    for i in range(count):
        sign = chr(0x2460 + i % 20)  # a sign that stands nowhere else
        times.append(time_to(chat, sign, sign))
        chat.rest(0.02 + 0.013 * (i % 3))
        if i % 20 == 19:
            chat.write("\x15")
            chat.rest(0.05)
    return times


def time_to(chat, keys, seen):
    """Milliseconds from keys to what they bring onto the screen."""
    since = len(chat.seen)
    began = time.perf_counter()
    chat.write(keys)
    while seen.encode() not in chat.seen[since:]:
        chat.read(0.001)
    return (time.perf_counter() - began) * 1000


def figure_keys(options):
    """key to screen while a model decodes"""
    chat = Chat("-n", "100000", "-c", "8192")
    chat.rest(2.5)  # the model is loaded by then
    chat.write(STORY + "\r")
    chat.wait("writes")
    times = key_times(chat, 300)
    chat.close()
    return f"p50 {percentile(times, 0.5):.1f} ms, p99 {percentile(times, 0.99):.1f} ms of {len(times)}"


def figure_stop(options):
    """Esc to stopped, in a prefill of 4,000 tokens and in decode"""
    out = []
    long = "\x1b[200~" + "All work and no play. " * 660 + "\x1b[201~"
    for name, question, sign in (("prefill", long, "reads"), ("decode", STORY, "writes")):
        times = []
        chat = Chat("-n", "100000", "-c", "8192")
        chat.rest(2.5)  # the model is loaded by then
        for i in range(30):
            since = len(chat.seen)
            chat.write("\x0e")
            chat.rest(0.1)
            chat.write(question)
            chat.rest(0.2)
            chat.write("\r")
            chat.wait(sign, since)
            chat.rest(0.3 + 0.037 * (i % 10))
            since = len(chat.seen)
            began = time.perf_counter()
            chat.write("\x1b")
            while b"stopped" not in chat.seen[since:]:
                chat.read(0.001)
            times.append((time.perf_counter() - began) * 1000)
        chat.close()
        out.append(f"{name}: p50 {percentile(times, 0.5):.0f} ms, p99 {percentile(times, 0.99):.0f} ms of {len(times)}")
    return "; ".join(out)


def figure_reuse(options):
    """second turn of a linear chat: tokens prefilled"""
    chat = Chat("-n", "60", "--temp", "0")
    chat.rest(2.5)  # the model is loaded by then
    for n, question in enumerate((STORY, "And then?", "And after that?"), 1):
        chat.write(question + "\r")
        chat.answered(n)
        chat.rest(0.3)
    usages = [m["usage"] for m in chat.made()]
    chat.close()
    return "; ".join(f"{u['prompt_tokens']} tokens: {u['reused_tokens']} reused, {u['prompt_tokens'] - u['reused_tokens']} new" for u in usages)


def switches(pid):
    total = 0
    for status in glob.glob(f"/proc/{pid}/task/*/status"):
        for line in open(status):
            if "ctxt_switches" in line:
                total += int(line.split()[1])
    return total


def figure_idle(options):
    """wake-ups of both processes in 10 idle seconds"""
    chat = Chat("-n", "20")
    chat.rest(2.5)  # the model is loaded by then
    chat.write("hello\r")
    chat.answered()
    chat.rest(8)
    engine = chat.engine()
    before = (switches(chat.pid), switches(engine))
    chat.rest(10)
    after = (switches(chat.pid), switches(engine))
    chat.close()
    return f"chat {after[0] - before[0]}, engine {after[1] - before[1]}"


def peak(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def figure_memory(options):
    """peak memory of engine + chat ÷ the bare loop, context 8,192, batch 512"""
    chat = Chat("-n", "200", "-c", "8192", "-b", "512", "-t", "2", "--temp", "0")
    chat.rest(2.5)  # the model is loaded by then
    chat.write("\x1b[200~" + "All work and no play. " * 660 + "\x1b[201~\r")
    chat.answered()
    ours = (peak(chat.pid), peak(chat.engine()))
    chat.close()
    text = f"chat {ours[0]:.0f} MiB + engine {ours[1]:.0f} MiB"
    if not options.raw:
        return text + "; the ratio needs --raw"
    loop = subprocess.Popen([options.raw, MODEL, "-p", "0", "-n", "128", "-d", "7616", "-r", "1", "-t", "2"], stdout=subprocess.DEVNULL)
    most = 0.0
    while loop.poll() is None:
        try:
            most = max(most, peak(loop.pid))
        except OSError:
            pass
        time.sleep(0.05)
    return f"{text}; bare loop {most:.0f} MiB; ratio {sum(ours) / most:.3f}"


def figure_busy(options):
    """decode with one busy process beside ÷ quiet, threads left to the program"""
    def rate():
        done = subprocess.run([PROGRAM, "ask", "--json", "-m", MODEL, "-n", "600", "-c", "1024", "--mode", "greedy", STORY],
                              capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
        return json.loads(done.stdout)["timings"]["tokens_per_second"]

    ratios = []
    for _ in range(4):
        quiet = rate()
        neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            busy = rate()
        finally:
            neighbour.send_signal(signal.SIGKILL)
            neighbour.wait()
        ratios.append(busy / quiet)
    return f"{statistics.median(ratios):.3f} ({min(ratios):.2f}–{max(ratios):.2f})"


def figure_beams(options):
    """a round of a beam search ÷ the bare loop of as many rows in one call; and ÷ as many single steps, where faster"""
    if not options.raw:
        return "needs --raw"
    out = []
    flags = ["-p", "0", "-n", "64", "-d", "0", "-r", "3", "-t", "2"]
    for beams in (2, 3, 4):
        ratios = []
        for _ in range(5):
            ours = 1 / bench(*flags, "--beams", str(beams))[f"beam{beams}x64"]
            together = beams / raw(options.raw, *flags, "-b", str(beams))[f"tg64x{beams}"]
            apart = beams / raw(options.raw, *flags)["tg64"]
            ratios.append(ours / min(together, apart))
        out.append(f"{beams} beams {statistics.median(ratios):.3f} ({min(ratios):.2f}–{max(ratios):.2f})")
    return ", ".join(out)


def figure_answer(options):
    """time of a whole answer with 4 beams ÷ greedy, 128 tokens each"""
    def took(*flags):
        done = subprocess.run([PROGRAM, "ask", "--json", "-m", MODEL, "-n", "128", "-c", "1024", "-t", "2", *flags, STORY],
                              capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
        answer = json.loads(done.stdout)
        return answer["timings"]["decode_ms"] / answer["usage"]["completion_tokens"]

    ratios = [took("--beams", "4") / took("--mode", "greedy") for _ in range(5)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def figure_lens(options):
    """decode with the microscope open ÷ closed"""
    ratios = []
    for _ in range(3):
        chat = Chat("--temp", "0.8", "-s", "3", "-n", "129", "-t", "2", "-c", "2048")
        chat.rest(2.5)  # the model is loaded by then
        for n in range(1, 32):
            chat.write("\x0e" + STORY + "\r")
            chat.answered(n)
            chat.rest(0.5)
            chat.write("\x1b[20~")
            chat.rest(0.5)
        # The files come in the order of their names: by time. Each open one is between two closed ones.
        rates = [made["timings"]["tokens_per_second"] for made in chat.made()]
        chat.close()
        ratios += [2 * rates[i] / (rates[i - 1] + rates[i + 1]) for i in range(1, len(rates) - 1, 2)]
    return f"{statistics.median(ratios):.3f} ({min(ratios):.2f}–{max(ratios):.2f})"


class Engine:
    """The engine's process with a model."""

    def __init__(self, model, params):
        self.process = subprocess.Popen([PROGRAM, "engine"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        self.ask({"request": "load", "path": model, "params": params}, "loaded")

    def ask(self, request, *answers):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] in answers:
                return event
            if event["event"] in ("load_failed", "failed"):
                sys.exit(f"figures: {event}")
        sys.exit("figures: the engine died")

    def generate(self, tokens, most):
        return self.ask({"request": "generate", "job": 1, "prompt": {"Tokens": tokens}, "ignore_eog": True,
                         "sampling": {"mode": "greedy", "max_tokens": most}}, "finished")

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def filled(model, params):
    """Peak memory in bytes of an engine after a prompt that fills the context and an answer."""
    engine = Engine(model, params | {"cache_ram": 0})
    engine.generate([1000 + i * 2654435761 % 40000 for i in range(params["n_ctx"] - 24)], 16)
    most = peak(engine.process.pid) * 2**20
    engine.end()
    return most


def figure_plan(options):
    """total of `llmchat plan` ÷ the engine's peak memory after a full context and an answer"""
    models = [("SmolLM2-135M-Instruct-Q4_1", True), ("gemma-3-270m-Q4_K_M", True), ("gemma-3-270m-Q4_K_M", False)]
    out = []
    for name, whole in models:
        ratios = []
        cases = ((1024, 128, "f16", "f16", "on"), (2048, 512, "f16", "f16", "on"), (2048, 512, "f16", "f16", "off"), (2048, 512, "q8_0", "q4_0", "on"))
        for n_ctx, n_batch, k, v, flash in cases:
            flags = ["-m", name, "-c", str(n_ctx), "-b", str(n_batch), "-ctk", k, "-ctv", v, "-fa", flash, "--set", f"swa_full={str(whole).lower()}"]
            done = subprocess.run([PROGRAM, "plan", "--json", "--bandwidth", "1G", *flags], capture_output=True, text=True, check=True)
            rows = json.loads(done.stdout)["rows"]
            planned = next(r for r in rows if r["name"] == (k if k == v else f"{k}/{v}"))["total_bytes"]
            params = {"n_ctx": n_ctx, "n_batch": n_batch, "threads": 1, "gpu_layers": 0, "swa_full": whole,
                      "kv": {"k": k, "v": v}, "flash_attn": flash}
            ratios.append(planned / filled(f"{MODELS}/{name}.gguf", params))
        out.append(f"{name}{'' if whole else ', windows only'} {min(ratios):.3f}–{max(ratios):.3f}")
    return "; ".join(out)


def figure_lengths(options):
    """seconds to the first token by the prompt's length, and tokens per second behind so many tokens"""
    lengths, table = [128, 512, 1024, 2048, 4096, 8000], []
    flags = ["-t", "2", "-c", "8192", "-r", "3"]
    for n in lengths:
        rate = bench(*flags, "-p", str(n), "-n", "0", "-d", "0")[f"pp{n}"]
        depth = bench(*flags, "-p", "0", "-n", "32", "-d", str(n))
        table.append((n, n / rate, rate, next(iter(depth.values()))))
    for n, seconds, rate, decode in table:
        print(f"  {n:>5} tokens: first token {seconds:.2f} s ({rate:.0f} tokens/s), behind them {decode:.1f} tokens/s "
              f"({1000 / decode:.1f} ms a token)", flush=True)
    (short, a, *_), (long, b, *_) = table[1], table[-1]
    return f"{long / short:.1f} times the tokens take {b / a:.1f} times as long; decode {table[0][3] / table[-1][3]:.1f} times faster at the start"


def figure_resident(options):
    """decode beside 8 resident conversations of 500 tokens ÷ alone"""
    def rate(others):
        chat = Chat("--mode", "greedy", "-n", "129", "-t", "2", "-c", "8192")
        chat.rest(2.5)  # the model is loaded by then
        for n in range(others):
            chat.write("\x0e" + f"Number {n}. " + "The quick brown fox jumps over the lazy dog. " * 34 + "\r")
            chat.answered(n + 1)
            chat.rest(0.3)
        chat.write("\x0e" + STORY + "\r")
        chat.answered(others + 1)
        made = chat.made()[-1]
        chat.close()
        return made["timings"]["tokens_per_second"]

    ratios = [rate(8) / rate(0) for _ in range(3)]
    return f"{statistics.median(ratios):.3f} ({min(ratios):.2f}–{max(ratios):.2f})"


def figure_resume(options):
    """opening a conversation of 4,000 tokens from its state file ÷ reading them"""
    ratios, words = [], []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            params = {"n_ctx": 8192, "threads": 2, "gpu_layers": 0, "cache_disk": 2**30, "cache_dir": folder}
            tokens = [1000 + i * 2654435761 % 40000 for i in range(4000)]
            times = []
            for _ in range(2):
                engine = Engine(MODEL, params)
                times.append(engine.generate(tokens, 1)["timings"]["ttft_ms"])
                engine.end()
            ratios.append(times[1] / times[0])
            words.append(times[1])
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f}–{max(ratios):.3f}); first token after {statistics.median(words):.0f} ms"


def figure_library(_):
    """conversations"""
    import library
    return "; ".join(library.measure(PROGRAM, statistics.median))
def long_journal(folder, messages):
    """A conversation of so many messages as the chat writes it, with an early try that is deleted."""
    created = 1764590000000
    name = f"{created}-00000001"
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/{name}.jsonl", "w") as file:
        def line(**entry):
            file.write(json.dumps(entry, separators=(",", ":")) + "\n")
        line(type="header", version=1, id=name, created=created)
        line(type="title", text="A long one")
        parent = None
        for n in range(1, messages + 1):
            role = "user" if n % 2 else "assistant"
            text = f"message-{n}: " + "all work and no play makes Jack a dull boy. " * (2 if n % 2 else 8)
            if role == "user":
                line(type="step", what="question")
            line(type="message", id=n, parent=parent, role=role, text=text, at=created + n, state="complete")
            parent = n
            if n == 4:
                line(type="step", what="delete")
                line(type="delete", id=3)
                parent = 2
    return name


def figure_long(options):
    """a conversation of 10,000 messages: opened, keys in it, a page up"""
    opened, keys, pages = [], [], []
    for _ in range(5):
        chat = Chat("--continue", before=lambda home: long_journal(f"{home}/data/conversations", 10_000))
        chat.wait("message-10000")
        opened.append(time.time() - chat.began)
        chat.rest(2.5)  # the model is loaded by then
        keys += key_times(chat, 60)
        for _ in range(40):
            pages.append(time_to(chat, "\x1b[5~", "\x1b[?2026l"))
            chat.rest(0.05)
        chat.close()
    return (f"shown {statistics.median(opened):.2f} s after the start ({max(opened):.2f} at most); key p50 {percentile(keys, 0.5):.1f} ms, "
            f"p99 {percentile(keys, 0.99):.1f} ms of {len(keys)}; page up p99 {percentile(pages, 0.99):.1f} ms of {len(pages)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--raw")
    parser.add_argument("--only", default="bench,screen,start,keys,stop,reuse,idle,memory,busy,beams,answer,lens,resident,resume,plan,lengths,long,library")
    options = parser.parse_args()
    for name in options.only.split(","):
        figure = globals()[f"figure_{name}"]
        print(f"{figure.__doc__}: {figure(options)}", flush=True)


if __name__ == "__main__":
    main()
