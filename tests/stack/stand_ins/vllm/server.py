"""Stand-in for `vllm serve` with its development endpoints: `python -m vllm.server MODEL PORT`."""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch

from vllm import LLM, SamplingParams  # type: ignore[import-not-found]

_MODEL, _PORT = sys.argv[1], int(sys.argv[2])
_LLM = LLM(_MODEL)
_CONFIG = {"weight_transfer_config": {"backend": "nccl"}, "model_config": {"logprobs_mode": "processed_logprobs"}}
_KNOWN: dict[str, Any] = {
    "/health": {},
    "/server_info": {"vllm_config": _CONFIG},
    "/get_world_size": {"world_size": 1},
    "/v1/models": {"data": [{"id": _MODEL}]},
    "/start_weight_update": {},
    "/finish_weight_update": {},
    "/reset_prefix_cache": {"success": True},
}


def _complete(body: dict[str, Any]) -> dict[str, Any]:
    sampling = SamplingParams(n=body["n"], temperature=body["temperature"], max_tokens=body["max_tokens"])
    found = _LLM.generate([{"prompt_token_ids": ids} for ids in body["prompt"]], sampling)
    choices = []
    for request in found:
        for each in request.outputs:
            told = [next(iter(position.items())) for position in each.logprobs]
            tokens = [f"token_id:{token}" for token, _ in told]
            numbers = [one.logprob for _, one in told]
            top = [{token: number} for token, number in zip(tokens, numbers, strict=True)]
            logprobs = {"tokens": tokens, "token_logprobs": numbers, "top_logprobs": top}
            choice = {"prompt_token_ids": request.prompt_token_ids, "token_ids": each.token_ids, "logprobs": logprobs}
            choices.append(choice)
    return {"choices": choices}


def _take_weights(_: dict[str, Any]) -> dict[str, Any]:
    path = Path(os.environ["STAND_IN_WEIGHTS"])
    while not path.exists():
        time.sleep(0.01)
    _LLM.load_weights(torch.load(path).items())
    path.unlink()
    return {}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(_KNOWN[self.path.partition("?")[0]])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        acts = {"/v1/completions": _complete, "/update_weights": _take_weights}
        self._answer(acts[self.path](body) if self.path in acts else _KNOWN[self.path])

    def _answer(self, found: dict[str, Any]) -> None:
        text = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", _PORT), _Handler).serve_forever()
