"""busy.py URL SCRIPT: a server that stands before the daemon at URL and has no time at first.

The first path component names a client: /go/v1/... is /v1/... of the daemon. A client's first POST is answered
with 503 and Retry-After, those that follow by the daemon, but by 400 for one that came too early. GET of
/NAME/page is a page that runs SCRIPT, which is client.mjs, and shows what it prints; it is never turned away, since
the browser's clock runs faster than ours there.
"""
import http.server
import sys
import time
import urllib.error
import urllib.request

RETRY_AFTER = 2  # seconds; after one curl tries again without being told so
DAEMON, SCRIPT = sys.argv[1:]
PAGE = b"""<!doctype html><pre></pre><script type="module">
import { main } from "./client.mjs";
const pre = document.querySelector("pre");
main(location.href.replace("/page", ""), (line) => pre.append(line + "\\n")).catch((e) => pre.append(String(e)));
</script>"""
came = {}  # client -> when it was turned away


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path.endswith("/page"):
            came[self.path.split("/")[1]] = float("-inf")
            self.answer(200, PAGE, Content_Type="text/html")
        elif self.path.endswith("/client.mjs"):
            with open(SCRIPT, "rb") as script:
                self.answer(200, script.read(), Content_Type="text/javascript")
        else:
            self.answer(404)

    def do_POST(self):
        client, path = self.path[1:].split("/", 1)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if client not in came:
            came[client] = time.monotonic()
            self.answer(503, b'{"status":503,"code":"queue_full"}', Retry_After=RETRY_AFTER)
            return
        waited = time.monotonic() - came[client]
        if waited < RETRY_AFTER - 0.05:
            self.answer(400, b"came back after only %.3f s" % waited)
            return
        headers = {"Content-Type": self.headers["Content-Type"]}
        try:
            answer = urllib.request.urlopen(urllib.request.Request(f"{DAEMON}/{path}", body, headers))
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            self.answer(answer.status, answer.read(), Content_Type=answer.headers["Content-Type"])

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
