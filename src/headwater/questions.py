"""Questions: what a handler that answers is told, and what each of those who were asked has said."""

from headwater.channel.questions.desk import Answering
from headwater.channel.questions.forms import Question, Reply

__all__ = ["Answering", "Question", "Reply"]
