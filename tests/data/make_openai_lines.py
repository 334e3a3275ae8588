#!/usr/bin/env python3
"""Writes tests/data/openai/result_lines.json: results of rows of OpenAI batch files, as protobuf's
JSON, and the lines that they become. Body and error of a line are dumped by the types of OpenAI's own
Python package; the envelope, which has no type there, is as their Batch guide documents it.

Usage: make_openai_lines.py     (needs PyPI's openai==2.8.1)
"""

import base64
import json
import pathlib

from openai.types import Completion
from openai.types.batch_error import BatchError
from openai.types.chat import ChatCompletion
from openai.types.completion_choice import CompletionChoice, Logprobs
from openai.types.shared import ErrorObject

TARGET = pathlib.Path(__file__).resolve().parent / "openai/result_lines.json"
UID = "0198c0de0000700080000000000000aa"
CREATED = 1750000000


def dump(model):
    return model.model_dump_json(exclude_unset=True)


def text(value):
    """As protobuf's JSON has bytes."""
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


def line(index, custom_id, status_code, body, error="null"):
    response = "null"
    if body is not None:
        response = (f'{{"status_code":{status_code},"request_id":"req_{UID}_{index}",'
                    f'"body":{body}}}')
    return (f'{{"id":"batch_req_{UID}_{index}","custom_id":{json.dumps(custom_id)},'
            f'"response":{response},"error":{error}}}\n')


def usage(prompt, output, cached):
    return ({"promptTokens": prompt, "outputTokens": output, "cachedTokens": cached},
            {"completion_tokens": output, "prompt_tokens": prompt, "total_tokens": prompt + output,
             "prompt_tokens_details": {"cached_tokens": cached}})


def result(index, form, **fields):
    return {"seq": 1, "index": index, "customId": f"row-{index}", "form": form, **fields}


def chat_case(name, index, choices, logprobs=None):
    """`choices`: text, finish reason and stop reason of each; `logprobs` of the first: tokens with
    their alternatives."""
    counts, wire_usage = usage(12, 3, 8)
    parts = []
    typed = []
    for i, (content, reason, stop) in enumerate(choices):
        part = {"text": text(content), "finishReason": f"FINISH_REASON_{reason.upper()}"}
        choice = {"finish_reason": reason, "index": i, "logprobs": None,
                  "message": {"content": content, "refusal": None, "role": "assistant"}}
        if stop:
            part["stopReason"] = stop
            choice["stop_reason"] = stop
        if i == 0 and logprobs:
            part["logprobs"] = [
                {"token": 5, "bytes": text(token), "logprob": value,
                 "top": [{"token": 6, "bytes": text(t), "logprob": v} for t, v in top]}
                for token, value, top in logprobs]
            choice["logprobs"] = {
                "content": [{"token": token, "bytes": list(token.encode()), "logprob": value,
                             "top_logprobs": [{"token": t, "bytes": list(t.encode()), "logprob": v}
                                              for t, v in top]}
                            for token, value, top in logprobs],
                "refusal": None}
        parts.append(part)
        typed.append(choice)
    completion = {**parts[0], "model": "smollm2", "usage": counts}
    if len(parts) > 1:
        completion["furtherChoices"] = parts[1:]
    body = ChatCompletion.model_validate(
        {"id": f"chatcmpl-{UID}_{index}", "object": "chat.completion", "created": CREATED,
         "model": "smollm2", "choices": typed, "usage": wire_usage})
    return {"name": name, "result": result(index, "REQUEST_FORM_OPENAI_CHAT", completion=completion),
            "line": line(index, f"row-{index}", 200, dump(body))}


def completion_case(name, index, content, reason, arrays=None, echoed=None, wire_logprobs=None):
    counts, wire_usage = usage(4, 2, 0)
    completion = {"text": text(content), "finishReason": f"FINISH_REASON_{reason.upper()}",
                  "model": "smollm2", "usage": counts, **(wire_logprobs or {})}
    if echoed is not None:
        completion["echoedPrompt"] = text(echoed)
    # Not checked: the type has no null for the first token of an echoed prompt, the API does.
    logprobs = Logprobs.model_construct(**arrays) if arrays else None
    choice = CompletionChoice.model_construct(finish_reason=reason, index=0, logprobs=logprobs,
                                              text=(echoed or "") + content)
    body = Completion.model_validate(
        {"id": f"cmpl-{UID}_{index}", "object": "text_completion", "created": CREATED,
         "model": "smollm2", "choices": [], "usage": wire_usage})
    body.choices = [choice]
    return {"name": name,
            "result": result(index, "REQUEST_FORM_OPENAI_COMPLETION", completion=completion),
            "line": line(index, f"row-{index}", 200, dump(body))}


def error_status(status, message, reason, **metadata):
    return {"code": status, "message": message,
            "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason,
                         "domain": "nightshift.v1", "metadata": metadata}]}


def answered_case(name, index, status, http, error):
    body = '{"error":' + dump(ErrorObject.model_validate(error)) + "}"
    return {"name": name, "result": result(index, "REQUEST_FORM_OPENAI_CHAT", error=status),
            "line": line(index, f"row-{index}", http, body)}


def untried_case(name, index, status, code):
    error = dump(BatchError(code=code, message=status["message"]))
    return {"name": name, "result": result(index, "REQUEST_FORM_OPENAI_CHAT", error=status),
            "line": line(index, f"row-{index}", 0, None, error)}


def cases():
    yield chat_case("chat", 0, [("The capital is Paris.", "stop", "")])
    yield chat_case("chat cut at its length", 1, [("The capital", "length", "")])
    yield chat_case("chat that a stop string ended", 2, [("a, b", "stop", "\n")])
    yield chat_case("chat of two choices", 3, [("Rome", "stop", ""), ("Milan, or", "length", "")])
    yield chat_case("chat with hard text", 4,
                    [("\"\\/\b\f\n\r\t\x01\x7f é€𝄞 </script> \u2028", "stop", "")])
    yield chat_case("chat with log-probabilities", 5, [("né", "stop", "")],
                    [("n", -0.25, [("n", -0.25), ("m", -1.5)]), ("é", -0.1, []),
                     ("", -9999.0, [("x", -12.345678)])])
    yield completion_case("completion", 6, " Paris.", "stop")
    yield completion_case(
        "completion with log-probabilities", 7, " Paris", "length",
        {"text_offset": [0], "token_logprobs": [-0.5], "tokens": [" Paris"],
         "top_logprobs": [{" Rome": -1.25, " Paris": -0.5}]},
        wire_logprobs={"logprobs": [{"token": 9, "bytes": text(" Paris"), "logprob": -0.5,
                                     "top": [{"token": 8, "bytes": text(" Rome"),
                                              "logprob": -1.25}]}]})
    yield completion_case(
        "completion with echo", 8, "c", "stop",
        {"text_offset": [0, 1, 2], "token_logprobs": [None, -0.75, -2.0],
         "tokens": ["a", "b", "c"], "top_logprobs": [None, {"b": -0.75}, {"c": -2.0}]},
        echoed="ab",
        wire_logprobs={"promptLogprobs": [{"token": 1, "bytes": text("a")},
                                          {"token": 2, "bytes": text("b"), "logprob": -0.75}],
                       "logprobs": [{"token": 3, "bytes": text("c"), "logprob": -2.0}]})
    yield answered_case(
        "refused request", 9,
        error_status(3, "max_tokens: must be a whole number, is a text", "FIELD_INVALID",
                     code="invalid_type", param="max_tokens"), 400,
        {"message": "max_tokens: must be a whole number, is a text",
         "type": "invalid_request_error", "param": "max_tokens", "code": "invalid_type"})
    yield answered_case(
        "request that the engine failed", 10,
        error_status(13, "the engine failed in all 3 attempts", "ATTEMPTS_EXHAUSTED"), 500,
        {"message": "the engine failed in all 3 attempts", "type": "server_error", "param": None,
         "code": "attempts_exhausted"})
    yield untried_case("cancelled request", 11,
                       error_status(1, "job a was cancelled", "JOB_CANCELLED"), "batch_cancelled")
    yield untried_case("expired request", 12, error_status(4, "the window closed", "JOB_EXPIRED"),
                       "batch_expired")
    yield untried_case("request of a failed job", 13,
                       error_status(13, "job a failed", "JOB_FAILED"), "batch_failed")


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(json.dumps(list(cases()), indent=1, ensure_ascii=False) + "\n")
