"""Chromium without a window, driven through its debugging pipe."""

import itertools
import json
import os
import select
import subprocess
import time


class Browser:
    """One page; `errors` are the exceptions and the warnings that it has logged."""

    def __init__(self, program, profile, width=1400, height=1000):
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        self._process = subprocess.Popen(
            [
                # The browser reads from its descriptor 3 and writes to 4.
                *("bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "bash"),
                *(program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                *("--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"),
            ],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._numbers, self._unread, self._session, self.errors = itertools.count(1), b"", None, []
        pages = self.call("Target.getTargets")["targetInfos"]
        page = next(each["targetId"] for each in pages if each["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(10)
        os.close(self._commands)
        os.close(self._answers)

    def call(self, method, **parameters):
        """The result of a command of the protocol."""
        message = {"id": next(self._numbers), "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == message["id"]:
                assert "error" not in answer, answer
                return answer["result"]

    def _read(self, timeout=60):
        """The next message; what the page complains about is kept."""
        end = time.monotonic() + timeout
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._answers], [], [], max(0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            self._unread += os.read(self._answers, 2**20)
        text, self._unread = self._unread.split(b"\0", 1)
        message = json.loads(text)
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(message["params"]["exceptionDetails"])
        if message.get("method") == "Log.entryAdded":
            self.errors.append(message["params"]["entry"])
        return message

    def resize(self, width, height):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def open(self, address, ready="globalThis.playground"):
        """Go to a page, and wait until it is ready."""
        self.call("Page.navigate", url=address)
        self.wait(f"document.readyState === 'complete' && {ready}")

    def evaluate(self, expression):
        """The value of a JavaScript expression; a promise is awaited."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, condition, seconds=30):
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({condition})"):
            assert time.monotonic() < end, condition

    def click(self, x, y, to=None):
        """Press the mouse at a point, drag it `to` another, and release it."""
        mouse = {"button": "left", "clickCount": 1, "buttons": 1}
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, **mouse)
        if to is not None:
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=to[0], y=to[1], **mouse)
            x, y = to
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=x, y=y, **mouse)

    def press(self, key, text="", code="", modifiers=0):
        """Press and release a key; modifiers: 2 is Control."""
        event = {"key": key, "code": code, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)
