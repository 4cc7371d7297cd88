"""A proxy for one server, whose connection can be made slow, cut or taken away."""
import socket
import threading
import time


class Proxy:
    """Listens at .port and forwards to the server's. Every connection looks at the settings as they are then:
    is_down           connections are closed at once
    piece, pause      answers pass in pieces of so many bytes, with a pause before each (0: as they come)
    cut_after         an answer to POST is cut behind so many bytes (None: not)
    """

    def __init__(self, to_port):
        self.to_port, self.is_down, self.piece, self.pause, self.cut_after = to_port, False, 0, 0.0, None
        self.n_posts = 0
        self.connections = set()
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def normal(self):
        self.is_down, self.piece, self.pause, self.cut_after = False, 0, 0.0, None

    def down(self):
        """Refuse connections from now on, and cut those that are there."""
        self.is_down = True
        with self.lock:
            for s in list(self.connections):
                self._shut(s)

    def close(self):
        self.listener.close()
        self.down()

    @staticmethod
    def _shut(s):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client:
            if self.is_down:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.to_port), timeout=10)
            except OSError:
                return
            with self.lock:
                self.connections |= {client, server}
            with server:
                server.settimeout(None)
                state = {"post": False}
                back = threading.Thread(target=self._back, args=(server, client, state), daemon=True)
                self._forth(client, server, state, back)
                back.join(timeout=120)
            with self.lock:
                self.connections -= {client, server}

    def _forth(self, client, server, state, back):
        try:
            first = True
            while data := client.recv(65536):
                if first and data.startswith(b"POST"):
                    state["post"] = True
                    self.n_posts += 1
                first = False
                server.sendall(data)
                if not back.is_alive():
                    back.start()
        except OSError:
            pass
        if back.ident is None:
            back.start()
        self._shut(server)  # the client has left: so does its request

    def _back(self, server, client, state):
        passed = 0
        try:
            while data := server.recv(self.piece or 65536):
                if state["post"] and self.pause:
                    time.sleep(self.pause)
                if state["post"] and self.cut_after is not None and passed + len(data) > self.cut_after:
                    client.sendall(data[: max(0, self.cut_after - passed)])
                    break
                client.sendall(data)
                passed += len(data)
        except OSError:
            pass
        self._shut(client)
        self._shut(server)
